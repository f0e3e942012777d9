package podvolume

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
)

// Request is a request to move the data of one volume, as far as all kinds are alike.
type Request struct {
	// Object is the request itself.
	Object client.Object
	// Pod and Volume name the volume of a PodVolumeBackup or PodVolumeRestore.
	Pod    client.ObjectKey
	Volume string
	// Claim names that of a DataUpload or DataDownload.
	Claim    client.ObjectKey
	Phase    velerov1.PodVolumePhase
	Message  string
	Progress velerov1.DataMoveOperationProgress
	Started  *metav1.Time

	cancels bool
	empty   bool // completed without a snapshot
}

// BackupRequest describes a PodVolumeBackup.
func BackupRequest(b *velerov1.PodVolumeBackup) Request {
	s := &b.Status
	return Request{
		Object: b, Pod: client.ObjectKey{Namespace: b.Spec.Pod.Namespace, Name: b.Spec.Pod.Name}, Volume: b.Spec.Volume,
		Phase: s.Phase, Message: s.Message, Progress: s.Progress, Started: s.StartTimestamp,
		cancels: b.Spec.Cancel, empty: s.SnapshotID == "",
	}
}

// RestoreRequest describes a PodVolumeRestore.
func RestoreRequest(r *velerov1.PodVolumeRestore) Request {
	s := &r.Status
	return Request{
		Object: r, Pod: client.ObjectKey{Namespace: r.Spec.Pod.Namespace, Name: r.Spec.Pod.Name}, Volume: r.Spec.Volume,
		Phase: s.Phase, Message: s.Message, Progress: s.Progress, Started: s.StartTimestamp,
		cancels: r.Spec.Cancel,
	}
}

// UploadRequest describes a DataUpload.
func UploadRequest(u *v2alpha1.DataUpload) Request {
	s := &u.Status
	return Request{
		Object: u, Claim: client.ObjectKey{Namespace: u.Spec.SourceNamespace, Name: u.Spec.SourcePVC},
		Phase: velerov1.PodVolumePhase(s.Phase), Message: s.Message, Progress: s.Progress, Started: s.StartTimestamp,
		cancels: u.Spec.Cancel, empty: s.SnapshotID == "",
	}
}

// DownloadRequest describes a DataDownload.
func DownloadRequest(d *v2alpha1.DataDownload) Request {
	s := &d.Status
	return Request{
		Object: d, Claim: client.ObjectKey{Namespace: d.Spec.TargetVolume.Namespace, Name: d.Spec.TargetVolume.PVC},
		Phase: velerov1.PodVolumePhase(s.Phase), Message: s.Message, Progress: s.Progress, Started: s.StartTimestamp,
		cancels: d.Spec.Cancel,
	}
}

// describeSubject names the volume in messages.
func (r *Request) describeSubject() string {
	if r.Claim.Name != "" {
		return "claim " + r.Claim.String()
	}
	return fmt.Sprintf("volume %s of pod %s", r.Volume, r.Pod)
}

// Ended reports whether the request is final.
func (r *Request) Ended() bool {
	switch r.Phase {
	case velerov1.PodVolumePhaseCompleted, velerov1.PodVolumePhaseFailed, velerov1.PodVolumePhaseCanceled:
		return true
	}
	return false
}

// isWaiting reports whether no controller has accepted the request yet.
func (r *Request) isWaiting() bool { return r.Phase == "" || r.Phase == velerov1.PodVolumePhaseNew }

// isUnaccepted reports whether no controller accepted the request within PrepareTimeout. One with a
// message waits in volume-mover's queue, and a PodVolumeRestore for a node: both may take any time.
func (r *Request) isUnaccepted(now time.Time) bool {
	if _, is := r.Object.(*velerov1.PodVolumeRestore); is {
		return false
	}
	return r.isWaiting() && r.Message == "" && !now.Before(r.Object.GetCreationTimestamp().Add(PrepareTimeout))
}

// Failure returns why the data of the volume is not moved and will not be; empty while it may be,
// and for data that is. A snapshot without an identifier is of no use to a restore.
func (r *Request) Failure(now time.Time) string {
	reason := r.Object.GetAnnotations()[AnnotationCancelReason]
	switch {
	case r.Phase == velerov1.PodVolumePhaseFailed:
		return cmp.Or(r.Message, "it failed without a message")
	case r.Phase == velerov1.PodVolumePhaseCanceled:
		return "canceled: " + cmp.Or(joinReasons(reason, r.Message), "no reason is known")
	case r.Phase == velerov1.PodVolumePhaseCompleted && r.empty:
		return "it completed without a snapshot"
	case r.isUnaccepted(now):
		return cmp.Or(reason, unacceptedReason)
	}
	return ""
}

// joinReasons returns why a request was cancelled, and what it says of itself: for what it waited, or how far it got.
func joinReasons(reason, message string) string {
	if reason == "" || message == "" || message == "canceled" {
		return cmp.Or(reason, message)
	}
	return reason + "; " + message
}

const unacceptedReason = "no volume-mover has accepted the request in 30m"

// pageSize is how many requests one call of a list returns.
const pageSize = 500

// ListBackups returns the PodVolumeBackups of the server's namespace with these labels.
func (a API) ListBackups(ctx context.Context, labels map[string]string) (all []velerov1.PodVolumeBackup, err error) {
	var page velerov1.PodVolumeBackupList
	err = a.eachPage(ctx, labels, &page, func() { all = append(all, page.Items...) })
	return all, err
}

// ListRestores returns the PodVolumeRestores of the server's namespace with these labels.
func (a API) ListRestores(ctx context.Context, labels map[string]string) (all []velerov1.PodVolumeRestore, err error) {
	var page velerov1.PodVolumeRestoreList
	err = a.eachPage(ctx, labels, &page, func() { all = append(all, page.Items...) })
	return all, err
}

// ListUploads returns the DataUploads of the server's namespace with these labels.
func (a API) ListUploads(ctx context.Context, labels map[string]string) (all []v2alpha1.DataUpload, err error) {
	var page v2alpha1.DataUploadList
	err = a.eachPage(ctx, labels, &page, func() { all = append(all, page.Items...) })
	return all, err
}

// listDownloads returns the DataDownloads of the server's namespace with these labels.
func (a API) listDownloads(ctx context.Context, labels map[string]string) (all []v2alpha1.DataDownload, err error) {
	var page v2alpha1.DataDownloadList
	err = a.eachPage(ctx, labels, &page, func() { all = append(all, page.Items...) })
	return all, err
}

// eachPage calls take for each page of a list.
func (a API) eachPage(ctx context.Context, labels map[string]string, page client.ObjectList, take func()) error {
	for more := ""; ; {
		err := a.Reader.List(ctx, page, client.InNamespace(a.Namespace), client.MatchingLabels(labels), client.Limit(pageSize), client.Continue(more))
		if err != nil {
			return fmt.Errorf("list %T: %w", page, err)
		}
		take()
		if more = page.GetContinue(); more == "" {
			return nil
		}
	}
}

// BackupLabels select the requests of a backup.
func BackupLabels(uid string) map[string]string {
	return map[string]string{velerov1.LabelBackupUID: uid}
}

// CancelBackups cancels the requests of a backup that are not final, PodVolumeBackups and DataUploads.
func (a API) CancelBackups(ctx context.Context, backup *velerov1.Backup, reason string) error {
	for _, name := range []string{NameBackup, NameUpload} {
		all, err := a.listRequests(ctx, name, BackupLabels(string(backup.UID)))
		if err != nil {
			return err
		}
		for i := range all {
			if err := a.CancelRequest(ctx, &all[i], reason); err != nil {
				return err
			}
		}
	}
	return nil
}

// CancelRequest asks for the end of a request, unless it is final or was asked before. The first
// reason stays.
func (a API) CancelRequest(ctx context.Context, r *Request, reason string) error {
	if r.Ended() || r.cancels {
		return nil
	}
	changed := r.Object.DeepCopyObject().(client.Object)
	annotations := changed.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationCancelReason] = reason
	changed.SetAnnotations(annotations)
	switch o := changed.(type) {
	case *velerov1.PodVolumeBackup:
		o.Spec.Cancel = true
	case *velerov1.PodVolumeRestore:
		o.Spec.Cancel = true
	case *v2alpha1.DataUpload:
		o.Spec.Cancel = true
	case *v2alpha1.DataDownload:
		o.Spec.Cancel = true
	}
	err := a.Client.Patch(ctx, changed, client.MergeFrom(r.Object))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cancel %T %s: %w", r.Object, r.Object.GetName(), err)
	}
	return nil
}
