package job

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/paused"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// attempt is one attempt of this process at a restore; it implements engine.Job.
type attempt struct {
	kind *Kind
	cfg  *Config

	*session
	inputs *inputs
	// schedule is that of the backup, for metrics.
	schedule string
	// finished is how the restore ends, once that is decided.
	finished *outcome.Finished
	// givenUp is why the restore ends without another try; nil for any other.
	givenUp error
}

// Run implements engine.Job.
func (a *attempt) Run(ctx context.Context, held *engine.Held[*velerov1.Restore]) error {
	s, end := newSession(a.cfg, held)
	defer end()
	a.session = s
	defer func() { a.kind.hide(s.restore.UID, a.recorder()) }()
	s.log.InfoContext(ctx, "restoring", "backup", s.restore.Spec.BackupName)
	err := a.unlessCancelled(ctx, a.run(ctx))
	var failure *fatalError
	if ctx.Err() == nil && errors.As(err, &failure) {
		return a.finish(ctx, a.failed(failure))
	}
	return err
}

// run opens everything a restore needs, restores, decides how it ends, and publishes the files.
func (a *attempt) run(ctx context.Context) error {
	in := newInputs(a.session)
	a.inputs = in
	defer in.close()
	e := &ending{session: a.session, inputs: in}
	err := span.Do(ctx, "open the backup", func(ctx context.Context) error { return a.open(ctx, in) })
	switch {
	case err != nil:
	case a.givenUp != nil:
		err = &fatalError{a.givenUp}
	default:
		err = a.restoring(ctx, in)
	}
	if request := a.held.Cancelled(); err == nil && request != nil && in.records.head.Finished == nil {
		err = request // the commit has not begun
	}
	waits, err := e.awaitOperations(ctx, a.unlessCancelled(ctx, err))
	if waits {
		return a.wait(ctx, in.operations, in.counts(), err != nil)
	}
	if err == nil && in.records.head.Finished == nil { // else it was decided by an earlier holder
		err = a.unlessCancelled(ctx, a.beginCommit(ctx))
	}
	if err := e.resumePaused(ctx, err); err != nil {
		return err
	}
	if err != nil {
		a.finished = e.explain(ctx, err)
		return err
	}
	if a.finished, err = e.decide(ctx, outcome.Finished{}); err != nil {
		return err
	}
	if err := span.Do(ctx, "store the files", func(ctx context.Context) error { return e.publish(ctx, a.finished) }); err != nil {
		return err
	}
	return a.finish(ctx, a.finished)
}

// open opens the inputs, and counts the restore when it begins.
func (a *attempt) open(ctx context.Context, in *inputs) error {
	quick, done := a.opening(ctx)
	defer done()
	location, err := in.locate(quick)
	if in.backup != nil {
		a.schedule = in.backup.Labels[velerov1.LabelScheduleName]
		if a.fresh() {
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
func (a *attempt) unlessCancelled(ctx context.Context, err error) error {
	opened := a.inputs != nil && a.inputs.records != nil
	if !opened && !a.paused.none() && cancelled(err) == nil {
		return err
	}
	return a.session.unlessCancelled(ctx, err)
}

// restoring restores the objects. Once the restore is asked to cancel, what is in flight has Grace to
// end.
func (a *attempt) restoring(ctx context.Context, in *inputs) error {
	grace, end := engine.Outlive(a.held.Cancelling(), a.cfg.Clock, Grace, nil)
	defer end()
	working, release := engine.Join(ctx, grace)
	defer release()
	b := &background{session: a.session, recorder: in.recorder, records: in.records}
	return b.during(working, func(ctx context.Context) error {
		if err := in.unlessDeleting(); err != nil {
			return err
		}
		x := &execution{session: a.session, inputs: in, show: func() { a.kind.show(a.restore.UID, in.recorder) }}
		return x.run(ctx)
	})
}

// failed is how a restore ends that failed.
func (a *attempt) failed(failure *fatalError) *outcome.Finished {
	if a.finished != nil {
		return a.finished
	}
	end := &outcome.Finished{Phase: velerov1.RestorePhaseFailed, Reason: a.reason(failure), Time: a.cfg.Clock.Now().UnixMilli()}
	if recorder := a.recorder(); recorder != nil {
		end.Counts = recorder.Counts()
	}
	return end
}

func (a *attempt) recorder() *outcome.Recorder {
	if a.inputs == nil {
		return nil
	}
	return a.inputs.recorder
}

// finish writes the terminal phase, as it was decided.
func (a *attempt) finish(ctx context.Context, end *outcome.Finished) error {
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
	if recorder := a.recorder(); recorder != nil {
		a.cfg.Metrics.Items(recorder.ByAction())
	}
	a.cfg.Ended(ctx, final)
	return nil
}

// setEnd writes the terminal phase and what belongs to it.
func (a *attempt) setEnd(o *velerov1.Restore, end *outcome.Finished) {
	o.Status.Phase = end.Phase
	at := metav1.NewTime(end.At())
	o.Status.CompletionTimestamp = &at
	progress(o, end.Counts)
	if a.inputs != nil {
		count(o, a.inputs.operations)
	}
	o.Status.FailureReason = end.Reason
	if a.paused.none() {
		paused.Clear(o)
	}
}

// progress writes counts into the status.
func progress(o *velerov1.Restore, counts outcome.Counts) {
	o.Status.Progress = &velerov1.RestoreProgress{TotalItems: counts.Total, ItemsRestored: counts.Done}
	o.Status.Warnings, o.Status.Errors = counts.Warnings, counts.Errors
	// Velero 1.18 writes it also when no hook ran.
	o.Status.HookStatus = &velerov1.HookStatus{HooksAttempted: counts.Hooks, HooksFailed: counts.HooksFailed}
}
