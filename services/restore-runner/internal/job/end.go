package job

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/podhook"
)

// checkCancelled ends a restore with a request to cancel that came before its end was decided.
func checkCancelled(_ context.Context, a *restoreAttempt) error {
	if request := a.held.Cancelled(); request != nil && a.inputs.records.head.Finished == nil {
		return request
	}
	return nil
}

// beginCommit marks that the restore is done: from now on a request to cancel it comes too late.
// One that was there before ends it. A decision of an earlier holder stands.
func beginCommit(ctx context.Context, a *restoreAttempt) error {
	if a.inputs.records.head.Finished != nil {
		return nil
	}
	return a.held.BeginCommit(ctx, func(o *velerov1.Restore) error {
		if o.DeletionTimestamp != nil {
			return errDeleted
		}
		return nil
	})
}

// recordEnd decides how the restore ends.
func recordEnd(ctx context.Context, a *restoreAttempt) (err error) {
	a.finished, err = a.decideEnd(ctx, outcome.Finished{Invalid: a.invalid})
	return err
}

// decideEnd writes the outcome of the restore as its last record, before any file is uploaded: every
// later holder follows it, so that files and phase agree. A reason means Failed. The decision of an
// earlier holder is kept.
func (a *restoreAttempt) decideEnd(ctx context.Context, end outcome.Finished) (*outcome.Finished, error) {
	in := a.inputs
	if in.records.head.Finished != nil {
		return in.records.head.Finished, nil
	}
	failpoint.Hit("restore-runner/before-decision")
	a.noteOperations()
	podhook.Abandon(in.recorder, "the restore ended: "+end.Reason)
	end.Phase = velerov1.RestorePhaseCompleted
	switch {
	case end.Reason != "":
		end.Phase = velerov1.RestorePhaseFailed
	case len(end.Invalid) > 0:
		end.Phase = velerov1.RestorePhaseFailedValidation
	case in.recorder.Counts().Errors > 0:
		end.Phase = velerov1.RestorePhasePartiallyFailed
	}
	finished := in.recorder.Finish(end)
	err := in.records.flushRecorder(ctx, in.recorder)
	switch {
	case errors.Is(err, claim.ErrLost):
		return nil, err
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		// The bucket stays away: the phase is still written, by the claim alone, and no file is.
		a.log.ErrorContext(ctx, "Failed to record the end of the restore; its files are not stored", "error", err)
		a.undecided = true
	}
	failpoint.Hit("restore-runner/decided")
	return finished, nil
}

// explainFailure leaves the log of a restore that ends as Failed in the bucket, and all files of one that
// was cancelled, as far as its records are open. Not much time is spent on it: the reason may be that
// the bucket is away, and who cancels waits.
func explainFailure(ctx context.Context, a *restoreAttempt) error {
	end, limit := outcome.Finished{Reason: a.failureReason(a.failure), Cancelled: cancelRequestOf(a.failure) != nil}, explainLimit
	if end.Cancelled {
		limit = cancelledLimit
	}
	if a.inputs.records != nil {
		limited, stop := context.WithTimeout(ctx, limit)
		defer stop()
		finished, err := a.decideEnd(limited, end)
		if a.finished = finished; err == nil {
			err = a.publishFiles(limited, finished)
		}
		if err != nil {
			a.log.WarnContext(ctx, "Failed to store the log of the failed restore", "error", err)
		}
	}
	if a.finished == nil {
		end.Phase, end.Time = velerov1.RestorePhaseFailed, a.cfg.Clock.Now().UnixMilli()
		if a.inputs.recorder != nil {
			end.Counts = a.inputs.recorder.Counts()
		}
		a.finished = &end
	}
	return nil
}

// writePhase writes the terminal phase, as it was decided.
func writePhase(ctx context.Context, a *restoreAttempt) error {
	end := a.finished
	final, err := a.held.Finish(ctx, func(o *velerov1.Restore) error {
		a.setTerminalPhase(o, end)
		return nil
	})
	if errors.Is(err, engine.ErrEnded) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write phase %s: %w", end.Phase, err)
	}
	counts := end.Counts
	a.log.InfoContext(ctx, "Restore ended", "phase", end.Phase, "items", counts.Done, "warnings", counts.Warnings, "errors", counts.Errors)
	a.cfg.Metrics.Ended(a.inputs.schedule(), end.Phase)
	if a.inputs.recorder != nil {
		a.cfg.Metrics.Items(a.inputs.recorder.ByAction())
	}
	a.cfg.Ended(ctx, final)
	return nil
}

// setTerminalPhase writes the terminal phase and what belongs to it.
func (a *restoreAttempt) setTerminalPhase(o *velerov1.Restore, end *outcome.Finished) {
	o.Status.Phase = end.Phase
	at := metav1.NewTime(end.At())
	o.Status.CompletionTimestamp = &at
	setProgress(o, end.Counts)
	setOperationCounts(o, a.inputs.operations)
	o.Status.FailureReason, o.Status.ValidationErrors = end.Reason, end.Invalid
	mark.ClearWaits(o)
	if a.paused.IsEmpty() {
		mark.ClearPaused(o)
	}
}

// setProgress writes counts into the status.
func setProgress(o *velerov1.Restore, counts outcome.Counts) {
	o.Status.Progress = &velerov1.RestoreProgress{TotalItems: counts.Total, ItemsRestored: counts.Done}
	o.Status.Warnings, o.Status.Errors = counts.Warnings, counts.Errors
	// Velero 1.18 writes it also when no hook ran.
	o.Status.HookStatus = &velerov1.HookStatus{HooksAttempted: counts.Hooks, HooksFailed: counts.HooksFailed}
}
