package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/pkg/restoreorder"
	"github.com/holdfast-io/holdfast/pkg/selection"
	"github.com/holdfast-io/holdfast/pkg/tarball"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pause"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/volume"
)

// tarballDir is where, in its work directory, a restore keeps what it needs of the tarball.
const tarballDir = "tarball"

// memberCache bounds the unpacked pieces of the tarball kept for neighbouring reads, in bytes.
const memberCache = 8 << 20

// job is one taken restore.
type job struct {
	*Runner
	restore *velerov1.Restore
	mine    claim.Claim
	log     *slog.Logger
	process context.Context         // ends when the process is told to stop
	stopped context.Context         // ends with process, and when the restore is asked to stop
	off     context.Context         // ends when the restore is asked to stop, with that as its cause
	callOff context.CancelCauseFunc // ends off
	lose    context.CancelCauseFunc // ends the job

	dir       string // the job's work directory
	built     *plan.Plan
	recorder  *outcome.Recorder
	records   *records
	ready     atomic.Bool // the recorder is where the earlier holders came
	schedule  string
	finished  *outcome.Finished // how the restore ends, once that is decided
	undecided bool              // but could not be recorded
}

// prepared is what a restore works with.
type prepared struct {
	source  tarball.Source
	plan    *plan.Plan
	volumes *volume.Decisions
	catalog *resource.Catalog
	history *outcome.History
	planned outcome.Planned
	order   restoreorder.Order
	runs    restoreorder.Runs
	pauses  pause.Rules
}

// restoreFrom plans and restores, or goes on where an earlier holder came to. Damage of the backup is an error of the restore,
// not the end of it (Velero 1.18).
func (j *job) restoreFrom(ctx context.Context, store objectstore.Store, backup, dir string) error {
	until := j.process
	if j.records.head.Planned == nil {
		until = j.stopped // nothing was restored yet: there is nothing to replay
	}
	quick, stop := untilEnd(ctx, until)
	defer stop()
	actions, err := j.act(ctx)
	if err != nil {
		return err
	}
	defer actions.close()
	p, err := j.prepare(quick, store, backup, filepath.Join(dir, tarballDir), actions)
	if p != nil && p.source != nil {
		defer func() {
			if err := p.source.Close(); err != nil {
				j.log.Warn("tarball not closed", "error", err)
			}
		}()
	}
	var damage *damageError
	if errors.As(err, &damage) && ctx.Err() == nil {
		j.ready.Store(true)
		j.recorder.Error(outcome.General, damage.message)
		return nil
	}
	if err != nil {
		return j.unlessDecided(quick, err)
	}
	if err := j.start(quick, p); err != nil || j.records.head.Finished != nil || p.plan == nil {
		return err
	}
	if j.records.head.Planned != nil {
		j.complain(actions)
		j.unclaimed(p)
	}
	snapshotters, done := j.snapshotters(ctx)
	defer done()
	return restore.Run(ctx, restore.Config{
		Backup: backup, Restore: j.restore.Name, UID: j.restore.UID, Spec: &j.restore.Spec, Plan: p.plan, Source: p.source, Volumes: p.volumes,
		Catalog: p.catalog, Recorder: j.recorder, REST: j.cfg.REST, Clock: j.cfg.Clock, History: p.history,
		Confirm: j.confirm, Stop: j.stopped.Done(),
		TerminatingTimeout: j.cfg.TerminatingTimeout, ResourceTimeout: j.cfg.ResourceTimeout,
		Actions: actions.bound, Collateral: actions.set.Collateral, Unsent: actions.set.Unsent, Snapshotters: snapshotters, Runs: p.runs, Pauses: p.pauses, Object: actions.object, ReadyTimeout: j.cfg.ReadyTimeout, Dir: dir,
	})
}

// unlessDecided passes over a failure when it is decided already how the restore ends: the backup was needed for the resource
// list only.
func (j *job) unlessDecided(ctx context.Context, err error) error {
	if j.records.head.Finished == nil || ctx.Err() != nil {
		return err
	}
	j.log.Warn("backup not opened again: the files of the restore will lack its objects", "error", err)
	return j.start(ctx, &prepared{})
}

// prepare opens the backup and makes the plan. What has to be said about them is recorded by the first holder only. Without an
// error, a result without a plan is a backup that cannot be read.
func (j *job) prepare(ctx context.Context, store objectstore.Store, backup, dir string, actions *acted) (*prepared, error) {
	head := &j.records.head
	if head.Finished != nil && head.Planned == nil {
		return &prepared{}, nil // nothing was planned then
	}
	opened, err := again(ctx, j, "open the tarball", func() (tarball.Source, error) {
		return tarball.Open(ctx, store, backup, dir, tarball.Limits{CacheBytes: memberCache})
	})
	if err != nil {
		return nil, j.unreadable(err, fmt.Sprintf("the tarball of backup %q cannot be read", backup))
	}
	failpoint.Hit("restore-runner/tarball-opened")
	p := &prepared{source: &patient{Source: opened, job: j}}
	if p.order, p.runs, err = restoreorder.Parse(j.restore.Annotations); err != nil {
		return p, fatal("%w", err)
	}
	if p.pauses, err = j.pauses(ctx, p.order); err != nil {
		return p, err
	}
	taken, err := j.taken(ctx, store, backup)
	if err != nil {
		return p, err
	}
	if p.catalog, err = resource.Discover(ctx, j.cfg.REST); err != nil {
		return p, fmt.Errorf("discover what the cluster serves: %w", err)
	}
	if head.Planned == nil {
		j.problems(p.source)
	}
	if err := j.plan(ctx, p, taken, actions); err != nil {
		return p, j.unreadable(err, fmt.Sprintf("the listing of backup %q cannot be read", backup))
	}
	if head.Planned == nil {
		j.complain(actions)
		j.unclaimed(p)
		return p, j.admitted(ctx, p.plan)
	}
	return p, nil
}

// damageError is a backup that cannot be read, which is recorded as an error of the restore.
type damageError struct{ message string }

// Error implements error.
func (e *damageError) Error() string { return e.message }

// unreadable makes damage found by the first holder an error of the restore, and damage found later its end: what was restored
// cannot be told from what was not.
func (j *job) unreadable(err error, what string) error {
	switch {
	case !damaged(err):
		return err
	case j.records.head.Planned != nil:
		return fatal("%s any more: %w", what, err)
	}
	return &damageError{fmt.Sprintf("%s: %v", what, err)}
}

// start records what was planned, or replays what was recorded; from then on outcomes count.
func (j *job) start(ctx context.Context, p *prepared) (err error) {
	if p.plan != nil {
		j.recorder.SetPlan(p.plan)
	}
	if p.history, err = j.replay(ctx, j.records); err != nil {
		return err
	}
	j.ready.Store(true)
	j.show(j.restore.UID, j.recorder)
	head := &j.records.head
	if head.Finished != nil {
		return nil
	}
	if head.Planned != nil {
		c := j.recorder.Counts()
		j.log.Info("restore goes on", "items", c.Total, "done", c.Done)
		j.recorder.Info(outcome.General, fmt.Sprintf("restore goes on at epoch %d: %d of %d objects have an outcome", j.mine.Epoch, c.Done, c.Total))
		failpoint.Hit("restore-runner/resumed")
		return nil
	}
	if p.history.Blind {
		j.recorder.Warn(outcome.General, "an earlier runner was interrupted, and the location cannot be written: the restore starts from its plan again")
	}
	j.recorder.Planned(&p.planned)
	if err := j.recorder.Sync(ctx); err != nil {
		return err
	}
	failpoint.Hit("restore-runner/planned")
	return nil
}

// problems reports the entries of the tarball that were passed over.
func (j *job) problems(source tarball.Source) {
	problems, n := source.Problems()
	for _, p := range problems {
		j.recorder.Error(outcome.General, fmt.Sprintf("entry %q of the tarball: %v", p.Path, p.Err))
	}
	if n > len(problems) {
		j.recorder.Error(outcome.General, fmt.Sprintf("%d more entries of the tarball were passed over", n-len(problems)))
	}
}

// plan selects the items of the backup. Names that an earlier holder resolved mean what they meant then.
func (j *job) plan(ctx context.Context, p *prepared, taken volume.Taken, actions *acted) error {
	spec := &j.restore.Spec
	survey, err := plan.Look(ctx, p.source)
	if err != nil {
		return err
	}
	if survey.Empty() && j.records.head.Planned == nil {
		j.recorder.Warn(outcome.General, "the backup holds no items: zero items to be restored")
	}
	p.volumes, err = volume.Decide(ctx, survey.Volumes, p.source.Read, taken, spec.RestorePVs == nil || *spec.RestorePVs)
	if err != nil {
		return err
	}
	names := newResolver(survey.Resolver(p.catalog), j.records.head.Planned)
	filter, err := selection.NewFilter(selection.Spec{
		IncludedResources: spec.IncludedResources, ExcludedResources: spec.ExcludedResources,
		IncludeClusterResources: spec.IncludeClusterResources,
		LabelSelector:           spec.LabelSelector, OrLabelSelectors: spec.OrLabelSelectors,
	}, selection.ExpandNamespaces(spec.IncludedNamespaces, spec.ExcludedNamespaces, survey.Namespaces), names)
	if err != nil {
		return fatal("spec: %w", err)
	}
	reserve, err := actions.bind(ctx, survey, survey.Resolver(p.catalog), j.records.head.Planned)
	if err != nil {
		return err
	}
	p.plan, err = plan.Build(ctx, p.source, plan.Config{
		Filter: filter, Mapping: spec.NamespaceMapping, Claim: p.volumes.Claim,
		NoClusterResources: spec.IncludeClusterResources != nil && !*spec.IncludeClusterResources,
		Reserve:            reserve,
		Dir:                j.dir,
		Order:              p.order,
		Paused:             func(kind schema.GroupKind) bool { return p.pauses.For(kind) != nil },
	})
	j.built = p.plan
	p.planned = names.planned
	p.planned.Reserve, p.planned.Missing, p.planned.Pauses = reserve, actions.set.Errors, p.pauses
	return err
}

// damaged tells that a backup cannot be read, however often it is tried.
func damaged(err error) bool {
	for _, target := range []error{tarball.ErrCorrupt, tarball.ErrTooLarge, tarball.ErrPath, tarball.ErrMismatch, manifest.ErrCorrupt} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
