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
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
	"github.com/holdfast-io/holdfast/services/deletion/internal/tries"
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
		return Done, r.refuse(ctx, j.request, err.Error(), false)
	case apierrors.IsNotFound(err), errors.Is(err, kube.ErrReplaced):
		j.resumed = true
	case err != nil:
		return r.interrupted(ctx, guarded, j, err)
	}
	failpoint.Hit("deletion/marked-deleting")
	if reason, err := r.restoring(guarded, j.backup.Name); err != nil {
		return r.interrupted(ctx, guarded, j, err)
	} else if reason != "" {
		return r.postpone(guarded, j, tries.Of(j.request).Wait(r.Clock.Now().Add(restorePause)), []string{reason})
	}
	if j.location == nil && !j.resumed && !neverWritten(j.backup) {
		return r.interrupted(ctx, guarded, j, errors.New("the backup was run meanwhile")) // admitted anew, with its location
	}
	if err := r.removeProcessed(guarded, j); err != nil {
		return r.interrupted(ctx, guarded, j, err)
	}
	r.Metrics.attempt(j.backup)
	r.Log.Info("deleting backup", "backup", j.backup.Name, "request", j.request.Name, "location", j.backup.Spec.StorageLocation)
	failures, again := r.steps(guarded, j)
	if guarded.Err() != nil {
		return r.interrupted(ctx, guarded, j, context.Cause(guarded))
	}
	r.Metrics.result(j.backup, len(failures) == 0)
	if len(failures) == 0 {
		r.Log.Info("backup deleted", "backup", j.backup.Name, "request", j.request.Name)
		return Done, r.succeed(ctx, j.request)
	}
	if again == whenFree {
		return r.postpone(ctx, j, tries.Of(j.request).Wait(r.Clock.Now().Add(busyPause)), failures)
	}
	return r.unsuccessful(ctx, j, failures, again == later)
}

// repeat says whether the same request tries again what failed.
type repeat int

const (
	never repeat = iota
	// later means a bounded number of times, with growing pauses.
	later
	// whenFree means that nothing was tried, because others wait for the same plugin.
	whenFree
)

// steps removes data, restores and the Backup, in this order, and returns what went wrong. Restores go even when the data
// stays (Velero 1.18); the Backup does not. Nothing goes while a plugin has not done what it has to do before, which it may be able to
// later.
func (r *Remover) steps(ctx context.Context, j *job) (failures []string, again repeat) {
	err := r.removeData(ctx, j)
	kept := new(keptError)
	if errors.As(err, &kept) {
		if errors.Is(err, itemaction.ErrBusy) {
			return kept.messages(), whenFree
		}
		return kept.messages(), later
	}
	if err != nil {
		failures = append(failures, fmt.Sprintf("delete the data of the backup: %v", err))
	}
	if j.resumed { // the restores that name the backup may be another one's now
		return failures, never
	}
	failpoint.Hit("deletion/data-removed")
	if err := r.removeRestores(ctx, j); err != nil {
		failures = append(failures, fmt.Sprintf("delete the restores of the backup: %v", err))
	}
	if len(failures) > 0 {
		return failures, never
	}
	failpoint.Hit("deletion/restores-removed")
	if err := r.confirm(ctx, j); err != nil {
		return append(failures, fmt.Sprintf("delete the Backup: %v", err)), never
	}
	err = r.Client.Delete(ctx, j.backup, client.Preconditions{UID: &j.backup.UID})
	if client.IgnoreNotFound(err) != nil {
		failures = append(failures, fmt.Sprintf("delete the Backup: %v", err))
	}
	failpoint.Hit("deletion/backup-removed")
	return failures, never
}

// confirm makes sure that the work is still this process's, before an effect that no compare-and-swap fences. A process that
// was paused must not delete what has been somebody else's since. It waits for a slot if this deletion lost its own.
func (r *Remover) confirm(ctx context.Context, j *job) error {
	if err := j.slot.Step(ctx); err != nil {
		return err
	}
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
