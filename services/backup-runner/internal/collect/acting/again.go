package acting

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// NotStoredAgain is the error about an item that cannot be stored again: what was stored of it
// before stays.
const NotStoredAgain = "an item that an operation named could not be stored again"

// Store runs the actions for the items that wait and stores them, regardless of the filters of the
// backup, one after the other, with their additional items. One that cannot be stored is an error
// of the backup. It returns early when the run is stopped.
func (p *Pool) Store(ctx context.Context, items []action.Item, out *partwriter.Writer) error {
	a := &objectProcessor{pool: p, out: out}
	for _, item := range items {
		if p.Stop.Requested() {
			return nil
		}
		if err := a.storeItemAgain(ctx, item); err != nil {
			return err
		}
		if err := a.drainPostponed(ctx); err != nil {
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

// storeItemAgain stores an item if it waits. An error ends the job.
func (a *objectProcessor) storeItemAgain(ctx context.Context, item action.Item) error {
	res, item, err := a.pool.Finder.Locate(item)
	if err != nil {
		return nil //nolint:nilerr // noted when it was to be read
	}
	key := itemset.KeyOf(res.Kind.GroupKind(), item.Namespace, item.Name)
	if a.pool.Items.Result(key) != itemset.Waiting {
		return nil
	}
	_, err = a.beginAdditional(ctx, &additionalItem{res: res, item: item, key: key, must: true})
	var broken *fatalError
	switch {
	case errors.As(err, &broken):
		return broken.err
	case err != nil:
		return a.out.Fail(partwriter.EntryAbout(item.GroupResource, item.Namespace, item.Name, NotStoredAgain, err))
	}
	return nil
}
