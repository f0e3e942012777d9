package acting

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/remark"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// Store stores items as they are now, whatever the filters of the backup say, one after the other,
// with what actions ask for. One that does not exist is a warning, one that cannot be stored an
// error: what was stored of it before stays. It returns early when the run is told to stop.
func (p *Pool) Store(ctx context.Context, items []action.Item, out *partwriter.Writer) error {
	a := &actor{pool: p, out: out}
	for _, item := range items {
		if p.Stop.Requested() {
			return nil
		}
		if err := a.again(ctx, item); err != nil {
			return err
		}
		if err := a.catchUp(ctx); err != nil {
			return err
		}
		if out.Full() {
			if err := out.Seal(); err != nil {
				return err
			}
		}
	}
	return nil
}

// again stores an item. An error ends the job.
func (a *actor) again(ctx context.Context, item action.Item) error {
	const failed = "an item that an operation named could not be stored again"
	res, item, err := a.pool.Finder.Locate(item)
	if err != nil {
		return a.out.Fail(remark.About(item.GroupResource, item.Namespace, item.Name, failed, err))
	}
	fate, err := a.begin(ctx, &extra{res: res, item: item, key: itemset.KeyOf(res.Kind.GroupKind(), item.Namespace, item.Name), must: true})
	var broken *fatalError
	switch {
	case errors.As(err, &broken):
		return broken.err
	case err != nil:
		return a.out.Fail(remark.About(item.GroupResource, item.Namespace, item.Name, failed, err))
	case fate == itemset.Absent:
		return a.out.Warn(remark.About(item.GroupResource, item.Namespace, item.Name, "an item that an operation named does not exist any more: it is as it was stored before", nil))
	}
	return nil
}
