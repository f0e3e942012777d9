package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/step"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// closeObjects releases what the restoring of objects needed.
func (a *restoreAttempt) closeObjects() {
	a.prepared.closeTarball(a.session)
	a.actions.close()
}

// planRestore plans. Damage of the backup is an error of the restore, not the end of it (Velero 1.18).
// A spec that selects nothing of the backup fails validation. Where it is decided already how the restore ends, the backup is needed for the resource list only.
func planRestore(ctx context.Context, a *restoreAttempt) (err error) {
	in := a.inputs
	planner := &restorePlanner{in: in, actions: a.actions}
	if err = a.checkStrictly(ctx); err == nil {
		a.prepared, err = planner.preparePlan(ctx)
	}
	var damage *damageError
	var unselected *unselectedError
	switch {
	case err == nil, ctx.Err() != nil:
	case errors.As(err, &damage):
		in.records.replayed.Store(true)
		in.recorder.Error(outcome.General, damage.message)
		return step.ErrDecided
	case errors.As(err, &unselected):
		in.records.replayed.Store(true)
		a.invalid = unselected.problems
		if a.prepared == nil {
			a.prepared = &preparedPlan{}
		}
		a.prepared.Plan = nil
		return step.ErrDecided
	case in.records.head.Finished != nil:
		a.log.WarnContext(ctx, "Failed to plan a restore whose end is decided; its files do not list the objects of the backup", "error", err)
		a.prepared.Plan = nil
		return nil
	}
	return err
}

// recordPlan records what was planned, or replays what was recorded; from then on outcomes count.
func recordPlan(ctx context.Context, a *restoreAttempt) (err error) {
	in, p := a.inputs, a.prepared
	if a.history, err = a.recordOrReplay(ctx, p); err != nil {
		return err
	}
	if in.records.head.Finished != nil || p.Plan == nil || in.isRestored() {
		return step.ErrDecided
	}
	if in.records.head.Planned != nil {
		planner := &restorePlanner{in: in, actions: a.actions}
		planner.reportLeftOut(a.actions)
		planner.reportUnclaimed(p)
	}
	return nil
}

func (a *restoreAttempt) recordOrReplay(ctx context.Context, p *preparedPlan) (*outcome.History, error) {
	recorder, head := a.inputs.recorder, &a.inputs.records.head
	if p.Plan != nil {
		recorder.SetPlan(p.Plan)
	}
	history, err := a.inputs.records.replayRecords(ctx, recorder)
	if err != nil {
		return nil, err
	}
	a.kind.showProgress(a.restore.UID, recorder)
	switch {
	case head.Finished != nil:
		return history, nil
	case head.Planned != nil:
		c := recorder.Counts()
		a.log.InfoContext(ctx, "Restore resumed", "items", c.Total, "done", c.Done)
		recorder.Info(outcome.General, fmt.Sprintf("restore goes on at epoch %d: %d of %d objects have an outcome", a.held.Claim.Epoch, c.Done, c.Total))
		failpoint.Hit("restore-runner/resumed")
		return history, nil
	case history.NoHistory:
		recorder.Warn(outcome.General, "an earlier runner was interrupted, and the location cannot be written: the restore starts from its plan again")
	}
	if in := a.inputs; in.recordsAt != in.location {
		recorder.Info(outcome.General, fmt.Sprintf("location %q refuses the log, results and lists of the restore: they are stored in the default location, %q", in.location, in.recordsAt))
	}
	recorder.Planned(&p.planned)
	if err := recorder.Sync(ctx); err != nil {
		return nil, err
	}
	failpoint.Hit("restore-runner/planned")
	return history, nil
}

// restoreObjects creates the objects, or has the files be written that are restored instead.
func restoreObjects(ctx context.Context, a *restoreAttempt) error {
	in := a.inputs
	if in.restoresFiles() {
		return a.restoreFiles(ctx)
	}
	if a.prepared.pausing {
		if err := in.markPaused(ctx); err != nil {
			return err
		}
	}
	snapshotters, done := in.openSnapshotters(ctx)
	defer done()
	config := a.engineConfig()
	config.Restored, config.Snapshotters, config.Instance = a.noteRestored, snapshotters, a.held.Claim.Owner
	return restore.Run(ctx, config)
}

// engineConfig is what the objects of a restore, or of a dry run of one, are restored with.
func (a *restoreAttempt) engineConfig() restore.Config {
	in, p, actions := a.inputs, a.prepared, a.actions
	return restore.Config{
		Request: restore.Request{Backup: in.backup.Name, Restore: a.restore.Name, UID: a.restore.UID, Spec: &a.restore.Spec, Server: a.cfg.Namespace, Location: in.backup.Spec.StorageLocation,
			SnapshotTimeout:   cmp.Or(in.backup.Spec.CSISnapshotTimeout.Duration, csisnapshot.DefaultTimeout),
			PreserveAddresses: a.restore.Annotations[holdfast.AnnotationPreserveAddresses] == "true",
			OverwriteVolumes:  a.restore.Annotations[holdfast.AnnotationOverwriteVolumes] == "true"},
		Content: p.Content,
		Cluster: restore.Cluster{
			REST: a.cfg.REST, Catalog: p.catalog, Clock: a.cfg.Clock, Confirm: a.confirm, Stop: a.stopped.Done(),
			TerminatingTimeout: a.cfg.TerminatingTimeout, ResourceTimeout: a.cfg.ResourceTimeout,
		},
		Records: restore.Records{Recorder: in.recorder, History: a.history, Unrecorded: in.records.readOnly, Idle: mark.WaitsOf(a.restore).Idle, Dir: in.dir},
		Extensions: restore.Extensions{
			Actions: actions.bound, IsProcessCrash: actions.set.IsProcessCrash, IsNotSent: actions.set.IsNotSent, Object: actions.object,
			ReadyTimeout: a.cfg.ReadyTimeout, Exec: a.cfg.Exec, WaitImage: a.cfg.WaitImage, WaitConfig: a.cfg.WaitConfig,
		},
	}
}
