// Package remove carries out DeleteBackupRequests: data first, the backup's own file last, the
// objects after that. Until its data is gone a backup stays listed, in this cluster and in the
// bucket.
package remove

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// processedLifetime is how long a request that ended with errors stays, to be read (Velero 1.18).
const processedLifetime = 24 * time.Hour

// processedInterval is the time between two looks at a processed request.
const processedInterval = time.Hour

// annotationLocation keeps the name of the backup's location on a request in progress: the data is
// deleted to its end also when a user deletes the Backup meanwhile.
const annotationLocation = "holdfast.io/deletion-location"

// Locations finds and opens locations; the caller closes the store.
type Locations interface {
	Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error)
	Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// Remover is the kind of job that carries out requests. It is safe for concurrent use.
type Remover struct {
	Reader    client.Reader // uncached
	Client    client.Client
	Namespace string
	Locations Locations
	Actions   Actions // nil means that no plugin has any
	Snapshots Snapshots
	// CSI removes CSI snapshots, with CSIActions for those that the items of a backup name; nil is
	// for tests that have none.
	CSI        CSI
	CSIActions Actions
	// Volumes removes snapshots of Pod volumes; nil is for tests that have none.
	Volumes Volumes
	Clock   clock.WithTicker
	Log     *slog.Logger
	Metrics *Metrics
	// Tries is how often one request tries what may succeed later; 0 means expiry.PerRequest.
	Tries int
}

// Pending implements engine.Kind.
func (r *Remover) Pending(_ context.Context, req *velerov1.DeleteBackupRequest) (engine.Interest, error) {
	switch {
	case r.Terminal(req):
		return engine.None, nil
	case r.isPostponed(req):
		return engine.Wait, nil
	case req.Status.Phase == velerov1.DeleteBackupRequestPhaseInProgress:
		return engine.Resume, nil
	}
	return engine.Begin, nil
}

// Terminal implements engine.Kind.
func (r *Remover) Terminal(req *velerov1.DeleteBackupRequest) bool {
	return req.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed
}

// Admit implements engine.Kind.
func (r *Remover) Admit(ctx context.Context, req *velerov1.DeleteBackupRequest) (engine.Decision[*velerov1.DeleteBackupRequest], error) {
	var none engine.Decision[*velerov1.DeleteBackupRequest]
	if r.isPostponed(req) {
		return engine.NotNow[*velerov1.DeleteBackupRequest]("its next try is due later"), nil
	}
	front, err := r.deletionRequests().hasOlderRequest(ctx, req)
	if err != nil {
		return none, err
	}
	if front {
		return engine.NotNow[*velerov1.DeleteBackupRequest]("an older request for the same backup goes first"), nil
	}
	j, reason, err := r.admitRequest(ctx, req)
	if err != nil {
		return none, err
	}
	if reason != "" {
		failpoint.Hit("deletion/before-refusal")
		return engine.End(endAsRefused(reason, j != nil && j.permanent), r.logRefusal), nil
	}
	return engine.Claim[*velerov1.DeleteBackupRequest](j), nil
}

// GiveUp implements engine.Kind: the request ends with the reason as its error.
func (r *Remover) GiveUp(_ *velerov1.DeleteBackupRequest, reason error, _ bool) engine.Decision[*velerov1.DeleteBackupRequest] {
	return engine.End(endAsRefused(reason.Error(), false), r.logRefusal)
}

// Claimed implements engine.Job: phase InProgress and the labels go into the write of the claim.
func (j *deletionJob) Claimed(d *velerov1.DeleteBackupRequest, _ claim.Claim) error {
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	d.Labels[velerov1.LabelBackupName] = velerov1.LabelValue(j.backup.Name)
	d.Labels[velerov1.LabelBackupUID] = string(j.backup.UID)
	if j.location != nil {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, annotationLocation, j.location.Name)
	}
	d.Status.Phase, d.Status.Errors = velerov1.DeleteBackupRequestPhaseInProgress, nil
	return nil
}

// Restoring returns which restores of the backup run, "" if none does or the deletion has begun:
// then they are waited for.
func (r *Remover) Restoring(ctx context.Context, b *velerov1.Backup) (string, error) {
	if b.Status.Phase == velerov1.BackupPhaseDeleting {
		return "", nil
	}
	return r.restoreSet().runningRestores(ctx, b.Name)
}

// endAsRefused ends a request that cannot be carried out; permanent marks it as one that would be
// refused again.
func endAsRefused(reason string, permanent bool) func(*velerov1.DeleteBackupRequest) error {
	return func(d *velerov1.DeleteBackupRequest) error {
		if permanent {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, annotationRefused, refusedVolumeData)
		}
		d.Status.Phase, d.Status.Errors = velerov1.DeleteBackupRequestPhaseProcessed, []string{reason}
		return nil
	}
}

// logRefusal logs the end of a request that was not carried out.
func (r *Remover) logRefusal(ctx context.Context, req *velerov1.DeleteBackupRequest) {
	failpoint.Hit("deletion/refused")
	r.Log.InfoContext(ctx, "Deletion of backup refused", "request", req.Name, "backup", req.Spec.BackupName, "reasons", req.Status.Errors)
}

// Finalize implements engine.Finalizer: it removes a processed request after a day. Its end is not
// recorded, so its age counts (Velero 1.18).
func (r *Remover) Finalize(ctx context.Context, req *velerov1.DeleteBackupRequest, _ func() bool) (again time.Duration, err error) {
	if req.DeletionTimestamp != nil {
		return 0, nil
	}
	if r.Clock.Now().Sub(req.CreationTimestamp.Time) < processedLifetime {
		return processedInterval, nil
	}
	return processedInterval, r.deletionRequests().removeRequest(ctx, req)
}
