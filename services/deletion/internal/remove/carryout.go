package remove

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// releaseLimit bounds the hand-over of a request when the process stops.
const releaseLimit = 5 * time.Second

// carryOut does the work of a claimed request. Losing the claim ends it without a trace; a stop hands it over.
func (r *Remover) carryOut(ctx context.Context, j *job) (Outcome, error) {
	guarded, stop := r.Claims.Guard(ctx, j.request)
	defer stop()
	guarded, j.lose = context.WithCancelCause(guarded)
	defer j.lose(context.Canceled)
	switch err := r.markDeleting(guarded, j); {
	case errors.Is(err, errRunning):
		return Done, r.refuse(ctx, j.request, err.Error())
	case apierrors.IsNotFound(err), errors.Is(err, kube.ErrReplaced):
		j.resumed = true
	case err != nil:
		return r.interrupted(ctx, guarded, j, err)
	}
	failpoint.Hit("deletion/marked-deleting")
	if j.location == nil && !j.resumed && !neverWritten(j.backup) {
		return r.interrupted(ctx, guarded, j, errors.New("the backup was run meanwhile")) // admitted anew, with its location
	}
	if err := r.removeProcessed(guarded, j); err != nil {
		return r.interrupted(ctx, guarded, j, err)
	}
	r.Metrics.attempt(j.backup)
	r.Log.Info("deleting backup", "backup", j.backup.Name, "request", j.request.Name, "location", j.backup.Spec.StorageLocation)
	failures := r.steps(guarded, j)
	if guarded.Err() != nil {
		return r.interrupted(ctx, guarded, j, context.Cause(guarded))
	}
	r.Metrics.result(j.backup, len(failures) == 0)
	if len(failures) == 0 {
		r.Log.Info("backup deleted", "backup", j.backup.Name, "request", j.request.Name)
		return Done, r.succeed(ctx, j.request)
	}
	r.Log.Warn("backup not deleted", "backup", j.backup.Name, "request", j.request.Name, "errors", failures)
	if err := r.finish(ctx, j, failures); err != nil && !errors.Is(err, claim.ErrLost) {
		return Later, client.IgnoreNotFound(err)
	}
	return Done, nil
}

// steps removes data, restores and the Backup, in this order, and returns what went wrong. Restores go even when the data
// stays (Velero 1.18); the Backup does not. Nothing goes while a plugin has not done what it has to do before.
func (r *Remover) steps(ctx context.Context, j *job) []string {
	var failures []string
	err := r.removeData(ctx, j)
	kept := new(keptError)
	if errors.As(err, &kept) {
		return kept.messages()
	}
	if err != nil {
		failures = append(failures, fmt.Sprintf("delete the data of the backup: %v", err))
	}
	if j.resumed { // the restores that name the backup may be another one's now
		return failures
	}
	failpoint.Hit("deletion/data-removed")
	if err := r.removeRestores(ctx, j); err != nil {
		failures = append(failures, fmt.Sprintf("delete the restores of the backup: %v", err))
	}
	if len(failures) > 0 {
		return failures
	}
	failpoint.Hit("deletion/restores-removed")
	if err := r.confirm(ctx, j); err != nil {
		return append(failures, fmt.Sprintf("delete the Backup: %v", err))
	}
	err = r.Client.Delete(ctx, j.backup, client.Preconditions{UID: &j.backup.UID})
	if client.IgnoreNotFound(err) != nil {
		failures = append(failures, fmt.Sprintf("delete the Backup: %v", err))
	}
	failpoint.Hit("deletion/backup-removed")
	return failures
}

// confirm makes sure that the work is still this process's, before an effect that no compare-and-swap fences. A process that
// was paused must not delete what has been somebody else's since.
func (r *Remover) confirm(ctx context.Context, j *job) error {
	err := r.Claims.Confirm(ctx, j.request)
	if errors.Is(err, claim.ErrLost) {
		j.lose(err)
	}
	return err
}

// interrupted leaves the request for another attempt: at once by somebody else when this process stops, soon when something
// failed on the way.
func (r *Remover) interrupted(ctx, guarded context.Context, j *job, cause error) (Outcome, error) {
	if errors.Is(context.Cause(guarded), claim.ErrLost) {
		r.Log.Info("deletion is another process's now", "backup", j.backup.Name, "request", j.request.Name)
		return Later, nil
	}
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	err := kube.Update(releasing, r.Reader, r.Client, j.request, func(d *velerov1.DeleteBackupRequest) error {
		if claim.Check(d, j.claim) != nil {
			return kube.ErrSkip
		}
		return claim.Release(d)
	})
	return Later, errors.Join(cause, client.IgnoreNotFound(err))
}

// succeed removes the request, and all others for the backup that is gone (Velero 1.18).
func (r *Remover) succeed(ctx context.Context, req *velerov1.DeleteBackupRequest) error {
	others, err := r.others(ctx, req)
	if err != nil {
		return err
	}
	uid := req.Labels[velerov1.LabelBackupUID]
	for i := range others {
		if o := &others[i]; o.Labels[velerov1.LabelBackupUID] == uid {
			if err := r.deleteRequest(ctx, o); err != nil {
				return err
			}
		}
	}
	err = r.deleteRequest(ctx, req)
	failpoint.Hit("deletion/request-removed")
	return err
}

// removeProcessed removes what earlier attempts left: this one's outcome replaces theirs.
func (r *Remover) removeProcessed(ctx context.Context, j *job) error {
	others, err := r.others(ctx, j.request)
	if err != nil {
		return err
	}
	for i := range others {
		if o := &others[i]; o.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed {
			if err := r.deleteRequest(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}
