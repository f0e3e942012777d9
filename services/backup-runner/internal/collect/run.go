package collect

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// collectRun is the state of one job that several stages share.
type collectRun struct {
	cfg Config
	job Job

	uploads context.Context //nolint:containedctx // of the writers, until the run is over
	past    *history.History
	facts   *volumes.Facts
	intents *history.Log
	spools  itemset.SpoolFiles
	results sealedResults
	remarks partwriter.VolumeRules
	workers partWriters
	// references finds what objects name, ruleWarnings are those about rules of users.
	references   *reference.Set
	ruleWarnings []string
	hooks        *podhook.Runner // nil where none runs
	// afterwards is how far the items of operations are; nil while the backup is collected.
	afterwards *checkpoint.PostOperation
}

func newCollectRun(uploads context.Context, cfg Config, job Job) *collectRun {
	return &collectRun{cfg: cfg, job: job, uploads: uploads, past: history.New(), facts: volumes.NewFacts(job.Backup),
		workers: partWriters{stop: job.Stop}}
}

// collectStages takes the stages one after another.
func (r *collectRun) collectStages(ctx context.Context) error {
	if err := r.readRecords(ctx); err != nil {
		return err
	}
	r.openWriters()
	if err := r.openReferences(ctx); err != nil {
		return err
	}
	compared := r.compareRevisions(ctx)
	defer compared()
	r.chooseSnapshots()
	if r.job.Exec != nil {
		r.hooks = podhook.New(podhook.Config{Set: r.job.Hooks, Exec: r.job.Exec, Intents: r.intents, Past: &r.past.Hooks,
			Confirm: r.job.Confirm, Opened: r.job.Opened, RanEarly: r.job.RanEarly, Log: r.cfg.Log})
		r.hooks.Resume()
	}
	bound, err := r.beginBackup(ctx)
	if err != nil {
		return err
	}
	s := r.newStages(bound)
	if err := s.firstPass(ctx); err != nil {
		return err
	}
	compared()
	if err := s.processSpooled(ctx); err != nil {
		return err
	}
	// What these take depends on what was collected before them, which must not be lost when they
	// are done: all of it is durable.
	failpoint.Hit("backup-runner/first-pass-done")
	if err := s.laterPasses(ctx); err != nil {
		return err
	}
	failpoint.Hit("backup-runner/second-pass-done")
	if err := r.decideVolumes(ctx, s.finder); err != nil {
		return err
	}
	if r.job.Actions.Close != nil {
		r.job.Actions.Close()
	}
	return r.noteListed()
}

// openWriters makes the writers.
func (r *collectRun) openWriters() {
	backup := r.job.Backup
	cfg := &partwriter.Config{
		Backup: backup.Name, UID: string(backup.UID), Epoch: r.job.Epoch, Started: backup.Status.StartTimestamp.Time,
		Dir: r.job.Dir, PartBytes: r.cfg.PartBytes, PartItems: r.cfg.PartItems, Clock: r.cfg.Clock, Log: r.cfg.Log,
		Store: r.job.Store, Records: r.intents, Revisions: r.job.Cut.Revisions, PostOperation: r.postOperation, Spools: &r.spools,
		Lines: r.job.Actions.Lines, Progress: r.job.Progress, Sealed: r.recordSealed,
	}
	for i := range max(r.cfg.Workers, r.cfg.BlockWorkers) {
		r.workers.writers = append(r.workers.writers, partwriter.New(r.uploads, cfg, i))
	}
}

// compareRevisions finds out, while the lists are prepared and begin, which kinds share the cut's revisions:
// each list of a kind needs the answer first. What it cannot find out is asked again, and noted, by
// the list itself. The returned function ends it.
func (r *collectRun) compareRevisions(ctx context.Context) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	kinds, ended := r.job.Catalog.Backupable(r.job.Filter.Resource), make(chan struct{})
	var failure error
	go func() {
		defer close(ended)
		failure = panics.Catch(func() error { return r.job.Cut.CompareAll(ctx, kinds) })
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-ended
		_ = panics.Raise(failure) // the list meets any other failure itself
	})
}

// chooseSnapshots decides whether snapshots are taken. What earlier holders left to be decided on
// is, whatever the spec is by now.
func (r *collectRun) chooseSnapshots() {
	r.remarks = partwriter.NewVolumeRules(r.job.Backup, false)
	switch {
	case r.job.Snapshots == nil:
	case r.past.Snapshots.Promised:
		r.remarks.ByChoice, r.remarks.Snapshots = false, true
	case r.job.Snapshots.Wanted(), r.job.Actions.PodVolumes != nil && !r.remarks.ByChoice:
		r.remarks.Snapshots = true
	}
}

// snapshotTaker returns what takes native snapshots between hooks; nil if none are wanted.
func (r *collectRun) snapshotTaker(finder *plan.Finder) func(context.Context, map[string]volumes.Volume, *partwriter.Writer) error {
	if !r.remarks.Snapshots || r.hooks == nil {
		return nil
	}
	cfg := r.volumeConfig(finder, false)
	return func(ctx context.Context, found map[string]volumes.Volume, out *partwriter.Writer) error {
		names := slices.Collect(maps.Keys(found))
		if err := volumes.Decide(ctx, cfg, found, []*partwriter.Writer{out}); err != nil {
			return err
		}
		r.facts.Decided(names)
		return out.Flush()
	}
}

// volumeConfig is what decides on volumes.
func (r *collectRun) volumeConfig(finder *plan.Finder, final bool) *volumes.Config {
	choice := r.job.Backup.Spec.SnapshotVolumes
	return &volumes.Config{
		Taker: r.job.Snapshots, Finder: finder, Past: &r.past.Snapshots, Intents: r.intents, Lock: r.job.LockVolume,
		PodVolumes: r.job.Actions.PodVolumes, Final: final, Insist: choice != nil && *choice && r.job.Snapshots.Wanted(), RecordItems: r.cfg.PartItems, Stop: r.workers.stop, Clock: r.cfg.Clock, Log: r.cfg.Log,
	}
}

// decideVolumes takes snapshots, if any are wanted.
func (r *collectRun) decideVolumes(ctx context.Context, finder *plan.Finder) error {
	if !r.remarks.Snapshots {
		return nil
	}
	defer r.job.Snapshots.Close()
	if err := volumes.Decide(ctx, r.volumeConfig(finder, true), r.facts.Undecided(), r.workers.writers[:r.cfg.BlockWorkers]); err != nil {
		return err
	}
	return r.workers.flushWriters(ctx)
}
