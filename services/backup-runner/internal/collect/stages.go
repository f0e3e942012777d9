package collect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/acting"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// collectionStages collect what was planned, with the catalog and the filter that are final now.
type collectionStages struct {
	workers *partWriters
	past    *history.History
	facts   *volumes.Facts
	finder  *plan.Finder
	lists   []*unitWorker
	second  plan.Second
	// blockWorkers is how many item blocks are processed at once.
	blockWorkers int

	// What objects go through that wait for actions; items is nil, and the rest void, while no
	// action may ask for an object.
	items    *itemset.Set
	loader   history.Loader
	arranger acting.Arranger
	pool     *acting.Pool
}

// newStages returns what collects with these actions, which may be nil.
func (r *collectRun) newStages(bound *actionset.Bound) *collectionStages {
	s := &collectionStages{workers: &r.workers, past: r.past, facts: r.facts, blockWorkers: r.cfg.BlockWorkers,
		second: plan.Second{Filter: r.job.Filter, Catalog: r.job.Catalog}}
	s.finder = &plan.Finder{Lister: r.cfg.Lister, Cut: r.job.Cut, Catalog: r.job.Catalog, Filter: r.job.Filter}
	if bound != nil {
		s.items = itemset.New()
		s.loader = history.Loader{Store: r.job.Store, Items: s.items, Spools: &r.spools, Dir: r.job.Dir, Progress: r.job.Progress}
		s.arranger = acting.Arranger{Finder: s.finder, Actions: bound, Items: s.items, Spools: &r.spools, Joined: r.past.Acted.Joined,
			Hooks: r.hooks, Resumed: len(r.past.Acted.Spools) > 0, Stop: r.workers.stop}
		if r.hooks != nil {
			s.arranger.Owed = r.past.Hooks.Open()
		}
		s.pool = acting.New(acting.Config{
			Actions: bound, Finder: s.finder, Items: s.items, Spools: &r.spools, Past: &r.past.Calls, ReadRecord: r.readRecord, Intents: r.intents,
			Instance: r.job.Instance, Operations: r.countOperations(), Confirm: r.job.Confirm, IsProcessCrash: r.job.Actions.IsProcessCrash, IsNotSent: r.job.Actions.IsNotSent,
			Concurrent: r.cfg.BlockWorkers > 1 || bound.FormBlocks(), Hooks: r.hooks, Reserved: s.arranger.Reserved, Snapshot: r.snapshotTaker(s.finder), PodVolumes: r.job.Actions.PodVolumes,
			Facts: r.facts, Remarks: r.remarks, References: r.references, Progress: r.job.Progress, Stop: r.workers.stop, Clock: r.cfg.Clock, Log: r.cfg.Log,
		})
	}
	cfg := &listingConfig{
		Lister: r.cfg.Lister, Cut: r.job.Cut, Filter: r.job.Filter, PartItems: r.cfg.PartItems, Actions: bound, Items: s.items,
		Past: &r.past.Units, Facts: r.facts, Remarks: r.remarks, References: r.references, Progress: r.job.Progress, Stop: r.workers.stop,
	}
	for _, out := range r.workers.writers[:r.cfg.Workers] {
		s.lists = append(s.lists, newUnitWorker(cfg, out))
	}
	return s
}

// firstPass lists what the first holder planned.
func (s *collectionStages) firstPass(ctx context.Context) error {
	start := s.past.Start
	kinds := plan.First(s.second.Filter, s.second.Catalog, start.LiveNamespaces)
	if err := s.lists[0].Vanished(start.Kinds, kinds, s.second.Catalog); err != nil {
		return err
	}
	kinds = slices.DeleteFunc(kinds, func(k plan.Kind) bool { return !slices.Contains(start.Kinds, k.Name()) })
	return s.collectDurably(ctx, plan.Units(kinds, s.second.Filter))
}

// laterPasses list what depends on what was collected before, until nothing new does.
func (s *collectionStages) laterPasses(ctx context.Context) error {
	return s.second.RunPasses(s.facts, s.items, func(units []plan.Unit) error {
		if err := s.collectDurably(ctx, slices.Values(units)); err != nil {
			return err
		}
		return s.processSpooled(ctx)
	})
}

// collectDurably collects the units and makes everything durable.
func (s *collectionStages) collectDurably(ctx context.Context, units iter.Seq[plan.Unit]) error {
	if err := s.collectUnits(ctx, units); err != nil {
		return err
	}
	return s.workers.flushWriters(ctx)
}

// collectUnits lets the workers collect the units and returns when all are done, or when the run is
// stopped.
func (s *collectionStages) collectUnits(ctx context.Context, units iter.Seq[plan.Unit]) error {
	return plan.ForEach(ctx, len(s.lists), units, func(ctx context.Context, worker int, u *plan.Unit) (more bool, err error) {
		err = context.Cause(ctx)
		if err == nil && !s.workers.stop.Requested() {
			err = s.lists[worker].List(ctx, u)
		}
		switch {
		case s.workers.stop.Requested() && (err == nil || errors.Is(err, ErrStopped)):
			return false, nil // the others come to the end of their pages
		case err != nil:
			return false, fmt.Errorf("collect %s: %w", u.ID(), err)
		}
		return true, nil
	})
}

// processSpooled processes what waits for actions and makes everything durable.
func (s *collectionStages) processSpooled(ctx context.Context) error {
	if s.items == nil || s.items.Open()+len(s.past.Acted.Spools)+len(s.arranger.Owed) == 0 {
		return nil
	}
	if err := s.loader.Load(ctx, &s.past.Acted); err != nil {
		return err
	}
	if s.items.Pending()+len(s.arranger.Owed) == 0 {
		return nil
	}
	if err := s.pool.Process(ctx, s.arranger.Arrange, s.workers.writers[:s.blockWorkers]); err != nil {
		return err
	}
	return s.workers.flushWriters(ctx)
}
