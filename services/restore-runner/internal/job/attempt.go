package job

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/step"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// restoreAttempt is one attempt of this process at a restore, and what its steps hand on; it
// implements engine.Job. One goroutine runs the steps.
type restoreAttempt struct {
	kind *Kind
	cfg  *Config
	// givenUp is why the restore ends without another try; nil for any other.
	givenUp error

	*session
	steps  step.Runner[*restoreAttempt]
	inputs *restoreInputs
	// misplaced is why the backup cannot be restored from, where paused objects are resumed before
	// the restore ends.
	misplaced error
	// lasting is the context of the work at objects, of all steps.
	lasting  context.Context //nolint:containedctx // as long as they are restored
	actions  *boundActions
	prepared *preparedPlan
	history  *outcome.History
	// invalid is why the spec cannot be what was meant; the restore fails validation.
	invalid []string
	// restored is when every object had a durable outcome; planned are the objects of the plan, idle those of
	// a restore that left its place.
	restored      atomic.Pointer[time.Time]
	planned, idle int64
	// failure is why the restore ends as Failed, or errDeleted.
	failure error
	// finished is how the restore ends, once that is decided.
	finished *outcome.Finished
	// undecided: how the restore ends could not be recorded, so that no file may be stored.
	undecided bool
}

// Run implements engine.Job.
func (a *restoreAttempt) Run(ctx context.Context, held *engine.Held[*velerov1.Restore]) error {
	s, end := newSession(a.cfg, held)
	defer end()
	a.session, a.inputs = s, newInputs(s, fmt.Sprintf("%s-%d", s.restore.UID, held.Claim.Epoch))
	defer a.inputs.close()
	defer func() { a.kind.idle.Add(-a.idle) }()
	defer func() { a.kind.hideProgress(s.restore.UID, a.inputs.recorder) }()
	a.steps = step.Runner[*restoreAttempt]{State: a, Holder: held, Clock: a.cfg.Clock, Log: s.log, Pauses: isWaiting, Outranks: a.outranksCancel}
	s.log.InfoContext(ctx, "Restoring backup", "backup", s.restore.Spec.BackupName)
	err := a.restoreBackup(ctx)
	if err == nil {
		err = a.steps.Run(ctx, endSteps())
	} else if a.failure = a.failureOf(ctx, err); a.failure != nil {
		err = a.endFailure(ctx)
	}
	if isWaiting(err) {
		return a.awaitOperationsPhase(ctx, a.inputs.operations, a.inputs.outcomeCounts())
	}
	return err
}

// restoreBackup restores, up to the decision that the restore ends well.
func (a *restoreAttempt) restoreBackup(ctx context.Context) error {
	if err := a.steps.Run(ctx, openSteps()); err != nil {
		return err
	}
	reporter := &waitReporter{session: a.session, recorder: a.inputs.recorder, restored: &a.restored, leavePlace: a.leavePlace, written: mark.WaitsOf(a.restore)}
	b := &backgroundWriter{session: a.session, recorder: a.inputs.recorder, records: a.inputs.records, reporter: reporter}
	err := b.runWhile(ctx, func(ctx context.Context) error {
		a.lasting = ctx
		defer a.closeObjects()
		return a.steps.Run(ctx, objectSteps())
	})
	if err != nil {
		return err
	}
	return a.steps.Run(ctx, settleSteps())
}

// endFailure ends a restore that failed, or is being deleted.
func (a *restoreAttempt) endFailure(ctx context.Context) error {
	if !errors.Is(a.failure, errDeleted) {
		return a.steps.Run(ctx, failureSteps())
	}
	if err := a.steps.Run(ctx, deletedSteps()); err != nil {
		return err
	}
	return a.failure
}

// failureOf returns the failure that ends the restore; nil for an error that leaves it to its next
// holder.
func (a *restoreAttempt) failureOf(ctx context.Context, err error) error {
	var fatal *fatalError
	request := cancelRequestOf(err)
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.As(err, &fatal):
		return fatal
	case request != nil:
		return &fatalError{request}
	case errors.Is(err, errDeleted):
		return errDeleted
	case errors.Is(err, claim.ErrLost), isWaiting(err):
		return nil
	case isStoreFailure(err):
		return &fatalError{err}
	}
	return nil
}

// outranksCancel reports an error that counts although the restore is asked to stop: it ends the
// restore already, or this holder stops. While an earlier holder may have left objects paused, its
// records are opened first, as far as opening gives the time.
func (a *restoreAttempt) outranksCancel(ctx context.Context, err error) bool {
	if a.inputs.records == nil && !a.paused.IsEmpty() && cancelRequestOf(err) == nil {
		return true
	}
	return isFatal(err) || ctx.Err() != nil || a.held.Stopping().Err() != nil || errors.Is(err, claim.ErrLost)
}
