package volumes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// Why a claim is not filled from its moved snapshot.
var (
	errUnmoved = errors.New("annotation " + velerov1.AnnotationDataUploadName + " of the claim in the backup: not namespace/name of a DataUpload")
	errAlien   = errors.New("it is of another claim")
)

// dataMover is the name of the built-in data mover; so is the empty one.
const dataMover = "velero"

// fillMoved has a claim that is about to be created wait for a volume with its moved data (Velero 1.18). No
// provisioner serves a claim with a selector.
func (f *Filler) fillMoved(ctx context.Context, e *outcome.Entry, o *object.Object, stored map[string]any) error {
	if isStatic(o) {
		return errStatic
	}
	upload, err := f.readUpload(ctx, e, o, object.MapAt(stored, "metadata"))
	if err != nil {
		return err
	}
	v := &podvolume.MovedVolume{
		Claim: types.NamespacedName{Namespace: o.Target.Namespace, Name: o.Target.Name}, Upload: upload, Timeout: f.MoveTimeout,
		ClaimUID: types.UID(object.TextAt(object.MapAt(stored, "metadata"), "uid")),
	}
	size := upload.Status.Progress.TotalBytes
	spec, err := unbindClaim(o, max(size, storedCapacity(stored)))
	if err != nil {
		return err
	}
	spec["selector"] = map[string]any{"matchLabels": map[string]any{velerov1.LabelDynamicPV: f.Job.SelectorValue(v)}}
	made := outcome.Volume{ClaimNamespace: v.Claim.Namespace, Claim: v.Claim.Name, Download: &outcome.Download{
		Snapshot: upload.Status.SnapshotID, DataMover: upload.Spec.DataMover, Operation: f.Job.DownloadID(v), Size: size,
	}}
	made.Download.ReclaimPolicy, made.Download.Labels = f.Volumes.Original(object.TextAt(object.MapAt(stored, "spec"), "volumeName"))
	f.Recorder.Provision(o.Node, made)
	o.Download = v
	return nil
}

// storedCapacity is how large the volume of a claim was, in bytes: it may be larger than what the claim requests, and
// the data with the metadata of its file system has to fit. It is 0 where it is not known.
func storedCapacity(stored map[string]any) int64 {
	capacity := object.MapAt(object.MapAt(stored, "status"), "capacity")
	size, err := apiresource.ParseQuantity(object.TextAt(capacity, string(corev1.ResourceStorage)))
	if err != nil {
		return 0
	}
	return size.Value()
}

// readUpload reads from the backup the DataUpload that took the data of a claim, regardless of the filters of the
// restore. One that has no data is an error.
func (f *Filler) readUpload(ctx context.Context, e *outcome.Entry, o *object.Object, meta map[string]any) (*v2alpha1.DataUpload, error) {
	text := object.TextAt(object.MapAt(meta, "annotations"), velerov1.AnnotationDataUploadName)
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		return nil, errUnmoved
	}
	item, ok := f.Snapshots.Upload(types.NamespacedName{Namespace: namespace, Name: name})
	if !ok {
		return nil, fmt.Errorf("DataUpload %s is not in the backup: the data was not moved before the backup ended", text)
	}
	body, err := f.Source.Read(ctx, item)
	if err != nil {
		return nil, fmt.Errorf("read DataUpload %s from the backup: %w", text, err)
	}
	u := &v2alpha1.DataUpload{}
	if err := jsonlimit.Unmarshal(body, u, jsonlimit.Object); err != nil {
		return nil, fmt.Errorf("decode DataUpload %s: %w", text, err)
	}
	switch phase := velerov1.PodVolumePhase(u.Status.Phase); {
	case u.Spec.SourceNamespace != f.Plan.Source(o.Node) || u.Spec.SourcePVC != f.Plan.Name(o.Node):
		err = errAlien
	case u.Spec.DataMover != "" && u.Spec.DataMover != dataMover:
		err = fmt.Errorf("its data is with data mover %q, which is not served", u.Spec.DataMover)
	case u.Status.SnapshotID == "":
		err = errors.New(strings.TrimSuffix(fmt.Sprintf("it is %s and has no snapshot: %s", phase, u.Status.Message), ": "))
	case phase != velerov1.PodVolumePhaseCompleted:
		e.Warn(fmt.Sprintf("its DataUpload is %s: what that could not read is not in the snapshot", phase))
	}
	if err != nil {
		return nil, fmt.Errorf("DataUpload %s: %w", text, err)
	}
	return u, nil
}

// requestDownload makes the DataDownload of a claim that this restore created, and notes its operation.
func (f *PodFiller) requestDownload(ctx context.Context, e *outcome.Entry, o *object.Object, result *apply.Result) {
	v := o.Download
	from := "snapshot " + v.Upload.Status.SnapshotID + " of DataUpload " + v.Upload.Name
	switch {
	case result.Action != apply.Created:
		e.Warn("the claim was not created by this restore: its moved data is not restored")
		return
	case f.DryRun:
		e.Info("would be filled from " + from)
		return
	case result.UID == "":
		return // another client deleted it
	}
	if err := f.makeRequest(ctx, f.Restore.Download(v), downloadsGVR); err != nil {
		e.Error(fmt.Sprintf("its data is not restored, and the claim waits for it: %v", err))
		return
	}
	e.Info("filled from " + from)
	f.followRequest(e, "the claim", &operation.Operation{
		Action: podvolume.NameDownload, ID: f.Restore.DownloadID(v),
		Item: operation.Resource{Resource: claimsGVR.Resource, Namespace: v.Claim.Namespace, Name: v.Claim.Name},
	})
}
