package collect

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/acting"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// StoreAgain stores items as they are now, regardless of the filters of the backup, and returns all the
// parts that hold them, those of earlier holders among them. All items are read before the actions
// of the backup see the first one, at one revision where job.Cut has one; a later holder continues
// with what was read. No action begins another operation. The items have to be the same for every
// holder. Errors and the epoch are as for Run.
func StoreAgain(ctx context.Context, cfg Config, job Job, items []operation.Resource) (Result, error) {
	uploads, cancel := context.WithCancel(ctx)
	r := newCollectRun(uploads, cfg, job)
	defer func() {
		cancel()
		r.workers.discardUnfinished()
		r.spools.Remove()
	}()
	if err := r.storeItemsAgain(ctx, effect.Items(items)); err != nil {
		return Result{}, err
	}
	return r.results.sum, nil
}

func (r *collectRun) storeItemsAgain(ctx context.Context, items []action.Item) error {
	r.afterwards = &checkpoint.PostOperation{}
	if err := r.resumeAgain(ctx); err != nil {
		return err
	}
	r.openWriters()
	if err := r.openReferences(ctx); err != nil {
		return err
	}
	bound, err := r.rebindActions(ctx)
	if err != nil {
		return err
	}
	set, out := itemset.New(), r.workers.writers[0]
	loader := history.Loader{Store: r.job.Store, Items: set, Spools: &r.spools, Dir: r.job.Dir, Progress: r.job.Progress}
	if err := loader.Load(ctx, &r.past.Acted); err != nil {
		return err
	}
	finder := &plan.Finder{Lister: r.cfg.Lister, Cut: r.job.Cut, Catalog: r.job.Catalog, Filter: r.job.Filter, Later: true}
	read := &itemReading{finder: finder, items: set, out: out, progress: r.job.Progress}
	if err := r.rereadItems(ctx, read, items); err != nil {
		return err
	}
	if err := r.newStorer(bound, finder, set).Store(ctx, items, out); err != nil {
		return err
	}
	if r.job.Actions.Close != nil {
		r.job.Actions.Close()
	}
	if err := out.Drain(); err != nil {
		return err
	}
	return r.workers.flushWriters(ctx)
}

// resumeAgain reads what earlier holders recorded: of the collection its calls, and what they read
// and stored again.
func (r *collectRun) resumeAgain(ctx context.Context) error {
	name, uid := r.job.Backup.Name, string(r.job.Backup.UID)
	records, err := checkpoint.Open(ctx, r.job.Store, name, uid, r.job.Epoch)
	if err != nil {
		return err
	}
	r.intents = history.NewLog(records)
	found := false
	err = checkpoint.Each(ctx, r.job.Store, name, uid, records.Earlier(), func(key string, rec *checkpoint.Record) error {
		state := rec.PostOperation
		if state == nil {
			r.past.AddCalls(key, rec)
			return nil
		}
		found = true
		r.past.Add(key, rec)
		r.afterwards.Read = max(r.afterwards.Read, state.Read)
		if len(state.Unbound) > len(r.afterwards.Unbound) {
			r.afterwards.Unbound = state.Unbound
		}
		if rec.Covers() {
			r.results.addSealed(key, &rec.Part)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what was stored before: %w", err)
	}
	if found {
		r.job.Cut.Restore(r.past.Revisions)
	}
	return nil
}

// rebindActions calls AppliesTo of the actions. One that is missing now, and was not when the
// backup was collected, is an error of the backup, noted once.
func (r *collectRun) rebindActions(ctx context.Context) (*actionset.Bound, error) {
	var before checkpoint.Start
	if r.past.Start != nil {
		before = *r.past.Start
	}
	noted := slices.Concat(before.Unbound, r.afterwards.Unbound)
	bound, unbound, err := r.bindActions(ctx, noted)
	if err != nil {
		return nil, err
	}
	if bound == nil {
		bound = &actionset.Bound{}
	}
	missing, err := r.noteMissedActions(before.Actions, bound, slices.Concat(noted, unbound))
	if err != nil {
		return nil, err
	}
	for _, text := range slices.Concat(unbound, missing) {
		if !slices.Contains(noted, text) {
			r.afterwards.Unbound = append(r.afterwards.Unbound, text)
		}
	}
	return bound, nil
}

// newStorer stores objects again.
func (r *collectRun) newStorer(bound *actionset.Bound, finder *plan.Finder, items *itemset.Set) *acting.Pool {
	return acting.New(acting.Config{
		Actions: bound, Items: items, Spools: &r.spools, Past: &r.past.Calls, ReadRecord: r.readRecord, Intents: r.intents, Again: true,
		Finder: finder, Confirm: r.job.Confirm, IsProcessCrash: r.job.Actions.IsProcessCrash, IsNotSent: r.job.Actions.IsNotSent,
		Facts: r.facts, Remarks: r.remarks, References: r.references, Progress: r.job.Progress, Stop: r.workers.stop, Clock: r.cfg.Clock, Log: r.cfg.Log,
	})
}
