package collect

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/acting"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/intent"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/lookup"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// Again stores items as they are now, whatever the filters of the backup say, and returns the parts
// that hold them. The actions of the backup see them; none begins another operation. What earlier
// holders stored again is not in the result. Errors and the epoch are as for Run.
func Again(ctx context.Context, cfg Config, job Job, items []operation.Resource) (Result, error) {
	cfg.setDefaults()
	uploads, cancel := context.WithCancel(ctx)
	r := newRun(uploads, cfg, job)
	defer func() {
		cancel()
		r.crew.discard()
		r.spools.Remove()
	}()
	if err := r.again(ctx, items); err != nil {
		return Result{}, err
	}
	return r.results.sum, nil
}

func (r *run) again(ctx context.Context, items []operation.Resource) error {
	records, err := checkpoint.Open(ctx, r.job.Store, r.job.Backup.Name, string(r.job.Backup.UID), r.job.Epoch)
	if err != nil {
		return err
	}
	r.intents = intent.New(records)
	r.open()
	bound, _, err := r.bind(ctx, r.job.Actions.Errors) // the collection noted these
	if err != nil {
		return err
	}
	if bound == nil {
		bound = &actionset.Bound{}
	}
	if err := r.storer(bound).Store(ctx, itemsOf(items), r.crew.writers[0]); err != nil {
		return err
	}
	if r.job.Actions.Close != nil {
		r.job.Actions.Close()
	}
	if err := r.crew.writers[0].Drain(); err != nil {
		return err
	}
	return r.crew.settle(ctx)
}

// storer stores objects again.
func (r *run) storer(bound *actionset.Bound) *acting.Pool {
	return acting.New(acting.Config{
		Actions: bound, Items: itemset.New(), Spools: &r.spools, Past: &r.past.Calls, ReadRecord: r.record, Intents: r.intents, Again: true,
		Finder:  &lookup.Finder{Lister: r.cfg.Lister, Cut: r.job.Cut, Catalog: r.job.Catalog, Filter: r.job.Filter},
		Confirm: r.job.Confirm, Collateral: r.job.Actions.Collateral, Unsent: r.job.Actions.Unsent,
		Facts: r.facts, Remarks: r.remarks, Progress: r.job.Progress, Stop: r.crew.stop, Clock: r.cfg.Clock, Log: r.cfg.Log,
	})
}

func itemsOf(items []operation.Resource) []action.Item {
	out := make([]action.Item, len(items))
	for i, item := range items {
		out[i] = action.Item{GroupResource: schema.GroupResource{Group: item.Group, Resource: item.Resource}, Namespace: item.Namespace, Name: item.Name}
	}
	return out
}
