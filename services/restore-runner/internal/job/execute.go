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

// restoreExecution plans and restores, or resumes where an earlier holder was interrupted.
type restoreExecution struct {
	*session
	inputs *restoreInputs
	// show is called when counts begin to mean something.
	show func()
}

// runExecution restores the objects. Damage of the backup is an error of the restore, not the end of it
// (Velero 1.18).
func (x *restoreExecution) runExecution(ctx context.Context) error {
	in := x.inputs
	if in.isRestored() && in.records.head == (outcome.Head{}) {
		return fatalErrorf("the records of the restore do not say what it restored")
	}
	quick, stop := x.quickContext(ctx, in.records.head.Planned != nil)
	defer stop()
	actions, err := in.openActions(ctx)
	if err != nil {
		return err
	}
	defer actions.close()
	planner := &restorePlanner{in: in, actions: actions}
	var p *preparedPlan
	err = span.Do(quick, "plan", func(ctx context.Context) (err error) {
		p, err = planner.preparePlan(ctx)
		return err
	})
	defer p.closeTarball(x.session)
	var damage *damageError
	if errors.As(err, &damage) && ctx.Err() == nil {
		in.records.replayed.Store(true)
		in.recorder.Error(outcome.General, damage.message)
		return nil
	}
	if err != nil {
		return x.unlessDecided(quick, err)
	}
	history, err := x.recordOrReplay(quick, p)
	if err != nil || in.records.head.Finished != nil || p.plan == nil || in.isRestored() {
		return err
	}
	if in.records.head.Planned != nil {
		planner.reportLeftOut(actions)
		planner.reportUnclaimed(p)
	}
	return span.Do(ctx, "restore the objects", func(ctx context.Context) error { return x.restorePlanned(ctx, p, actions, history) })
}

// restorePlanned creates the objects.
func (x *restoreExecution) restorePlanned(ctx context.Context, p *preparedPlan, actions *boundActions, history *outcome.History) error {
	in := x.inputs
	if p.pausing {
		if err := in.markPaused(ctx); err != nil {
			return err
		}
	}
	snapshotters, done := in.openSnapshotters(ctx)
	defer done()
	return restore.Run(ctx, restore.Config{
		Backup: in.backup.Name, Restore: in.restore.Name, UID: in.restore.UID, Spec: &in.restore.Spec, Plan: p.plan, Source: p.source, Volumes: p.volumes,
		Snapshots: p.snapshots, Server: x.cfg.Namespace,
		Catalog: p.catalog, Recorder: in.recorder, REST: x.cfg.REST, Clock: x.cfg.Clock, History: history,
		Confirm: x.held.Confirm, Stop: x.stopped.Done(),
		TerminatingTimeout: x.cfg.TerminatingTimeout, ResourceTimeout: x.cfg.ResourceTimeout,
		Unrecorded: in.records.readOnly, Instance: x.held.Claim.Owner,
		Actions: actions.bound, IsProcessCrash: actions.set.IsProcessCrash, IsNotSent: actions.set.IsNotSent, Snapshotters: snapshotters, Exec: x.cfg.Exec,
		Runs: p.runs, Pauses: p.pauses, Object: actions.object, ReadyTimeout: x.cfg.ReadyTimeout, Dir: in.dir,
	})
}

// unlessDecided passes over a failure when it is decided already how the restore ends: the backup
// was needed for the resource list only.
func (x *restoreExecution) unlessDecided(ctx context.Context, err error) error {
	if x.inputs.records.head.Finished == nil || ctx.Err() != nil {
		return err
	}
	x.log.WarnContext(ctx, "backup not opened; the files of the restore lack its objects", "error", err)
	_, err = x.recordOrReplay(ctx, &preparedPlan{})
	return err
}

// recordOrReplay records what was planned, or replays what was recorded; from then on outcomes count.
func (x *restoreExecution) recordOrReplay(ctx context.Context, p *preparedPlan) (*outcome.History, error) {
	recorder, head := x.inputs.recorder, &x.inputs.records.head
	if p.plan != nil {
		recorder.SetPlan(p.plan)
	}
	history, err := x.inputs.records.replayRecords(ctx, recorder)
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
	case history.NoHistory:
		recorder.Warn(outcome.General, "an earlier runner was interrupted, and the location cannot be written: the restore starts from its plan again")
	}
	recorder.Planned(&p.planned)
	if err := recorder.Sync(ctx); err != nil {
		return nil, err
	}
	failpoint.Hit("restore-runner/planned")
	return history, nil
}
