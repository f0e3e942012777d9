package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// execution plans and restores, or resumes where an earlier holder was interrupted.
type execution struct {
	*session
	inputs *inputs
	// show is called when counts begin to mean something.
	show func()
}

// run restores the objects. Damage of the backup is an error of the restore, not the end of it
// (Velero 1.18).
func (x *execution) run(ctx context.Context) error {
	in := x.inputs
	if in.restored() && in.records.head == (outcome.Head{}) {
		return fatal("the records of the restore do not say what it restored")
	}
	quick, stop := x.quick(ctx, in.records.head.Planned != nil)
	defer stop()
	actions, err := in.act(ctx)
	if err != nil {
		return err
	}
	defer actions.close()
	planner := &planner{in: in, actions: actions}
	var p *planned
	err = span.Do(quick, "plan", func(ctx context.Context) (err error) {
		p, err = planner.prepare(ctx)
		return err
	})
	defer p.close(x.session)
	var damage *damageError
	if errors.As(err, &damage) && ctx.Err() == nil {
		in.records.replayed.Store(true)
		in.recorder.Error(outcome.General, damage.message)
		return nil
	}
	if err != nil {
		return x.unlessDecided(quick, err)
	}
	history, err := x.start(quick, p)
	if err != nil || in.records.head.Finished != nil || p.plan == nil || in.restored() {
		return err
	}
	if in.records.head.Planned != nil {
		planner.complain(actions)
		planner.unclaimed(p)
	}
	return span.Do(ctx, "restore the objects", func(ctx context.Context) error { return x.restore(ctx, p, actions, history) })
}

// restore creates the objects.
func (x *execution) restore(ctx context.Context, p *planned, actions *acted, history *outcome.History) error {
	in := x.inputs
	if p.pausing {
		if err := in.markPaused(ctx); err != nil {
			return err
		}
	}
	snapshotters, done := in.snapshotters(ctx)
	defer done()
	return restore.Run(ctx, restore.Config{
		Backup: in.backup.Name, Restore: in.restore.Name, UID: in.restore.UID, Spec: &in.restore.Spec, Plan: p.plan, Source: p.source, Volumes: p.volumes,
		Snapshots: p.snapshots, Server: x.cfg.Namespace,
		Catalog: p.catalog, Recorder: in.recorder, REST: x.cfg.REST, Clock: x.cfg.Clock, History: history,
		Confirm: x.held.Confirm, Stop: x.stopped.Done(),
		TerminatingTimeout: x.cfg.TerminatingTimeout, ResourceTimeout: x.cfg.ResourceTimeout,
		Unrecorded: in.records.readOnly, Instance: x.held.Claim.Holder,
		Actions: actions.bound, Collateral: actions.set.Collateral, Unsent: actions.set.Unsent, Snapshotters: snapshotters, Exec: x.cfg.Exec,
		Runs: p.runs, Pauses: p.pauses, Object: actions.object, ReadyTimeout: x.cfg.ReadyTimeout, Dir: in.dir,
	})
}

// unlessDecided passes over a failure when it is decided already how the restore ends: the backup
// was needed for the resource list only.
func (x *execution) unlessDecided(ctx context.Context, err error) error {
	if x.inputs.records.head.Finished == nil || ctx.Err() != nil {
		return err
	}
	x.log.WarnContext(ctx, "backup not opened; the files of the restore lack its objects", "error", err)
	_, err = x.start(ctx, &planned{})
	return err
}

// start records what was planned, or replays what was recorded; from then on outcomes count.
func (x *execution) start(ctx context.Context, p *planned) (*outcome.History, error) {
	recorder, head := x.inputs.recorder, &x.inputs.records.head
	if p.plan != nil {
		recorder.SetPlan(p.plan)
	}
	history, err := x.inputs.records.replay(ctx, recorder)
	if err != nil {
		return nil, err
	}
	x.show()
	switch {
	case head.Finished != nil:
		return history, nil
	case head.Planned != nil:
		c := recorder.Counts()
		x.log.InfoContext(ctx, "restore resumed", "items", c.Total, "done", c.Done)
		recorder.Info(outcome.General, fmt.Sprintf("restore goes on at epoch %d: %d of %d objects have an outcome", x.held.Claim.Epoch, c.Done, c.Total))
		failpoint.Hit("restore-runner/resumed")
		return history, nil
	case history.Blind:
		recorder.Warn(outcome.General, "an earlier runner was interrupted, and the location cannot be written: the restore starts from its plan again")
	}
	recorder.Planned(&p.planned)
	if err := recorder.Sync(ctx); err != nil {
		return nil, err
	}
	failpoint.Hit("restore-runner/planned")
	return history, nil
}
