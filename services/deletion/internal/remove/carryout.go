package remove

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/deletion/internal/expiry"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
)

// Run implements engine.Job: it does the work of a claimed request.
func (j *deletionJob) Run(ctx context.Context, held *engine.Held[*velerov1.DeleteBackupRequest]) error {
	j.held, j.request = held, held.Object
	switch err := j.markDeleting(ctx); {
	case errors.Is(err, errRunning):
		return j.refuseRequest(ctx, err.Error())
	case apierrors.IsNotFound(err), errors.Is(err, kube.ErrReplaced):
		j.resumed = true
	case err != nil:
		return fmt.Errorf("mark backup %q: %w", j.backup.Name, err)
	}
	failpoint.Hit("deletion/marked-deleting")
	if reason, err := j.remover.restoreSet().runningRestores(ctx, j.backup.Name); err != nil {
		return err
	} else if reason != "" {
		return j.postponeRequest(ctx, expiry.ReadTries(j.request).Wait(j.remover.Clock.Now().Add(restorePause)), []string{reason})
	}
	if j.location == nil && !j.resumed && !NeverWritten(j.backup) {
		return errors.New("the backup was run meanwhile") // admitted anew, with its location
	}
	if err := j.remover.deletionRequests().removeProcessed(ctx, j.request); err != nil {
		return err
	}
	j.remover.Metrics.countAttempt(j.backup)
	j.remover.Log.InfoContext(ctx, "Deleting backup", "backup", j.backup.Name, "request", j.request.Name, "location", j.backup.Spec.StorageLocation)
	failures, again := j.runSteps(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return j.concludeAttempt(ctx, failures, again)
}

// refuseRequest ends a request that cannot be carried out any more.
func (j *deletionJob) refuseRequest(ctx context.Context, reason string) error {
	req, err := j.held.Finish(ctx, endAsRefused(reason, false))
	if err != nil {
		return err
	}
	j.remover.logRefusal(ctx, req)
	return nil
}

// concludeAttempt ends an attempt that was not interrupted.
func (j *deletionJob) concludeAttempt(ctx context.Context, failures []string, again retryKind) error {
	if again == whenFree {
		return j.postponeRequest(ctx, expiry.ReadTries(j.request).Wait(j.remover.Clock.Now().Add(busyPause)), failures)
	}
	j.remover.Metrics.countResult(j.backup, len(failures) == 0)
	if len(failures) > 0 {
		return j.concludeUnsuccessful(ctx, failures, again == later)
	}
	j.remover.Log.InfoContext(ctx, "Backup deleted", "backup", j.backup.Name, "request", j.request.Name)
	return j.remover.deletionRequests().removeAll(ctx, j.request)
}

// retryKind reports whether the same request tries again what failed.
type retryKind int

const (
	never retryKind = iota
	// later means a bounded number of times, with growing pauses.
	later
	// whenFree means that nothing failed: a plugin works for other deletions.
	whenFree
)

// runSteps removes data, restores and the Backup, in this order, and returns what went wrong. Restores
// go even when the data stays (Velero 1.18); the Backup does not. Nothing goes while a plugin has
// not done what it has to do before, which it may be able to later.
func (j *deletionJob) runSteps(ctx context.Context) (failures []string, again retryKind) {
	err := j.removeData(ctx)
	kept := new(keptError)
	if errors.As(err, &kept) {
		if errors.Is(err, itemaction.ErrBusy) {
			return kept.statusMessages(), whenFree
		}
		return kept.statusMessages(), later
	}
	if err != nil {
		failures = append(failures, fmt.Sprintf("delete the data of the backup: %v", err))
	}
	if j.resumed { // the restores that name the backup may be another one's now
		return failures, never
	}
	failpoint.Hit("deletion/data-removed")
	if err := j.remover.restoreSet().removeRestores(ctx, j.backup.Name, j.held.Confirm); err != nil {
		failures = append(failures, fmt.Sprintf("delete the restores of the backup: %v", err))
	}
	if len(failures) > 0 {
		return failures, never
	}
	failpoint.Hit("deletion/restores-removed")
	if err := j.held.Confirm(ctx); err != nil {
		return append(failures, fmt.Sprintf("delete the Backup: %v", err)), never
	}
	err = j.remover.Client.Delete(ctx, j.backup, client.Preconditions{UID: &j.backup.UID})
	if client.IgnoreNotFound(err) != nil {
		failures = append(failures, fmt.Sprintf("delete the Backup: %v", err))
	}
	failpoint.Hit("deletion/backup-removed")
	return failures, never
}
