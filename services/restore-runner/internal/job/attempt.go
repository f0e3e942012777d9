package job

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// restoreAttempt is one attempt of this process at a restore; it implements engine.Job.
type restoreAttempt struct {
	kind *Kind
	cfg  *Config

	*session
	inputs *restoreInputs
	// schedule is that of the backup, for metrics.
	schedule string
	// finished is how the restore ends, once that is decided.
	finished *outcome.Finished
	// givenUp is why the restore ends without another try; nil for any other.
	givenUp error
}

// Run implements engine.Job.
func (a *restoreAttempt) Run(ctx context.Context, held *engine.Held[*velerov1.Restore]) error {
	s, end := newSession(a.cfg, held)
	defer end()
	a.session = s
	defer func() { a.kind.hideProgress(s.restore.UID, a.newRecorder()) }()
	s.log.InfoContext(ctx, "restoring", "backup", s.restore.Spec.BackupName)
	err := a.unlessCancelled(ctx, a.runRestore(ctx))
	var failure *fatalError
	if ctx.Err() == nil && errors.As(err, &failure) {
		return a.writeTerminalPhase(ctx, a.failedEnd(failure))
	}
	return err
}

// runRestore opens everything a restore needs, restores, decides how it ends, and publishes the files.
func (a *restoreAttempt) runRestore(ctx context.Context) error {
	in := newInputs(a.session)
	a.inputs = in
	defer in.close()
	e := &restoreEnding{session: a.session, inputs: in}
	err := span.Do(ctx, "open the backup", func(ctx context.Context) error { return a.openInputs(ctx, in) })
	switch {
	case err != nil:
	case a.givenUp != nil:
		err = &fatalError{a.givenUp}
	default:
		err = a.restoreObjects(ctx, in)
	}
	if request := a.held.Cancelled(); err == nil && request != nil && in.records.head.Finished == nil {
		err = request // the commit has not begun
	}
	waits, err := e.awaitOperations(ctx, a.unlessCancelled(ctx, err))
	if waits {
		return a.awaitOperationsPhase(ctx, in.operations, in.outcomeCounts())
	}
	if err == nil && in.records.head.Finished == nil { // else it was decided by an earlier holder
		err = a.unlessCancelled(ctx, a.beginCommit(ctx))
	}
	if err := e.resumePaused(ctx, err); err != nil {
		return err
	}
	if err != nil {
		a.finished = e.explainFailure(ctx, err)
		return err
	}
	if a.finished, err = e.recordEnd(ctx, outcome.Finished{}); err != nil {
		return err
	}
	if err := span.Do(ctx, "store the files", func(ctx context.Context) error { return e.publishFiles(ctx, a.finished) }); err != nil {
		return err
	}
	return a.writeTerminalPhase(ctx, a.finished)
}

// openInputs opens the inputs, and counts the restore when it begins.
func (a *restoreAttempt) openInputs(ctx context.Context, in *restoreInputs) error {
	quick, done := a.openingContext(ctx)
	defer done()
	location, err := in.findLocation(quick)
	if in.backup != nil {
		a.schedule = in.backup.Labels[velerov1.LabelScheduleName]
		if a.isFresh() {
			a.cfg.Metrics.Begun(a.schedule)
		}
	}
	err = in.openAfter(quick, location, err)
	if err != nil && quick.Err() != nil && ctx.Err() == nil && !errors.Is(err, claim.ErrLost) {
		return context.Cause(quick)
	}
	return err
}

// unlessCancelled makes the request to cancel the failure of the restore, in the place of what it
// caused. While an earlier holder may have left objects paused, its records are opened first, as
// far as opening gives the time.
func (a *restoreAttempt) unlessCancelled(ctx context.Context, err error) error {
	opened := a.inputs != nil && a.inputs.records != nil
	if !opened && !a.paused.isEmpty() && cancelRequestOf(err) == nil {
		return err
	}
	return a.session.unlessCancelled(ctx, err)
}

// restoreObjects restores the objects. Once the restore is asked to cancel, what is in flight has Grace to
// end.
func (a *restoreAttempt) restoreObjects(ctx context.Context, in *restoreInputs) error {
	grace, end := engine.WithGrace(a.held.Cancelling(), a.cfg.Clock, Grace, nil)
	defer end()
	working, release := engine.Join(ctx, grace)
	defer release()
	b := &backgroundWriter{session: a.session, recorder: in.recorder, records: in.records}
	return b.runWhile(working, func(ctx context.Context) error {
		if err := in.unlessDeleting(); err != nil {
			return err
		}
		x := &restoreExecution{session: a.session, inputs: in, show: func() { a.kind.showProgress(a.restore.UID, in.recorder) }}
		return x.runExecution(ctx)
	})
}

// failedEnd is how a restore ends that failed.
func (a *restoreAttempt) failedEnd(failure *fatalError) *outcome.Finished {
	if a.finished != nil {
		return a.finished
	}
	end := &outcome.Finished{Phase: velerov1.RestorePhaseFailed, Reason: a.failureReason(failure), Time: a.cfg.Clock.Now().UnixMilli()}
	if recorder := a.newRecorder(); recorder != nil {
		end.Counts = recorder.Counts()
	}
	return end
}

func (a *restoreAttempt) newRecorder() *outcome.Recorder {
	if a.inputs == nil {
		return nil
	}
	return a.inputs.recorder
}

// writeTerminalPhase writes the terminal phase, as it was decided.
func (a *restoreAttempt) writeTerminalPhase(ctx context.Context, end *outcome.Finished) error {
	var final *velerov1.Restore
	err := span.Do(ctx, "write the phase", func(ctx context.Context) (err error) {
		final, err = a.held.Finish(ctx, func(o *velerov1.Restore) error {
			a.setEnd(o, end)
			return nil
		})
		return err
	})
	if errors.Is(err, engine.ErrEnded) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write phase %s: %w", end.Phase, err)
	}
	counts := end.Counts
	a.log.InfoContext(ctx, "restore ended", "phase", end.Phase, "items", counts.Done, "warnings", counts.Warnings, "errors", counts.Errors)
	a.cfg.Metrics.Ended(a.schedule, end.Phase)
	if recorder := a.newRecorder(); recorder != nil {
		a.cfg.Metrics.Items(recorder.ByAction())
	}
	a.cfg.Ended(ctx, final)
	return nil
}

// setEnd writes the terminal phase and what belongs to it.
func (a *restoreAttempt) setEnd(o *velerov1.Restore, end *outcome.Finished) {
	o.Status.Phase = end.Phase
	at := metav1.NewTime(end.At())
	o.Status.CompletionTimestamp = &at
	setProgress(o, end.Counts)
	if a.inputs != nil {
		setOperationCounts(o, a.inputs.operations)
	}
	o.Status.FailureReason = end.Reason
	if a.paused.isEmpty() {
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
