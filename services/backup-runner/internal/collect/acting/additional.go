package acting

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// maxDepth bounds how many objects wait for one another: each of them is in memory until its
// additional items are done. The last of them continues without waiting.
const maxDepth = 64

var errFailed = errors.New("it could not be backed up")

// request is how objects are to be backed up with another.
type request struct {
	by   string // an action
	must bool   // past the filters
}

// additionalItem is an additional item.
type additionalItem struct {
	res      resource.Resource
	item     action.Item
	key      itemset.Key
	must     bool
	detached bool // it may have a block, and is not processed with it
	depth    int  // of the object that needs it
}

// Additional implements actionset.Host: it backs up what an action asked for with the object, each once
// per backup. An error is one of the object, or a *fatalError.
func (t *objectTurn) Additional(ctx context.Context, by string, items []action.Item, must bool) error {
	req := request{by: by, must: must}
	for _, item := range items {
		if err := t.actor.backupAdditional(ctx, t.subject, &req, item); err != nil {
			return fmt.Errorf("action %s: Execute: additional item %s: %w", by, item, err)
		}
	}
	return nil
}

// backupAdditional backs up one additional item.
func (a *objectProcessor) backupAdditional(ctx context.Context, s *processedObject, req *request, item action.Item) error {
	res, item, err := a.pool.Finder.Locate(item)
	if err != nil {
		return err
	}
	if !a.pool.Actions.Counts(item.GroupResource) {
		return ErrUndeclared
	}
	items := a.pool.Items
	x := additionalItem{res: res, item: item, key: itemset.KeyOf(res.Kind.GroupKind(), item.Namespace, item.Name),
		must: req.must, detached: a.pool.Actions.FormBlocksOf(item.GroupResource), depth: s.depth}
	for {
		result := items.Result(x.key)
		if !req.must && result == itemset.Unknown && !a.pool.Finder.Admits(&res, item.Namespace) {
			return nil
		}
		if result == itemset.Waiting && a.isInHookedBlock(x.key) {
			return nil
		}
		if s.depth == maxDepth && result.Waits(req.must) {
			if result != itemset.Waiting { // else it has a turn of its own
				a.later = append(a.later, postponedItem{by: s.itemNames(), request: *req, item: item})
			}
			return nil
		}
		if result, err = a.beginAdditional(ctx, &x); err != nil {
			return err
		}
		switch result {
		case itemset.Failed:
			return errFailed
		case itemset.Absent:
			s.warnings = append(s.warnings, fmt.Sprintf("action %s asks for %s, which does not exist", req.by, item))
			return nil
		case itemset.Busy:
			ended, err := items.Wait(ctx, x.key, a.out.ID())
			if err != nil {
				return &fatalError{err}
			}
			if !ended {
				return nil // they ask for one another: this one does not wait
			}
		default:
			return nil
		}
	}
}

// beginAdditional processes an additional item if it has no result yet, and returns its result. An error is
// one of the object that needs it, or a *fatalError.
func (a *objectProcessor) beginAdditional(ctx context.Context, x *additionalItem) (itemset.Result, error) {
	begin := a.pool.Items.Begin
	if x.detached {
		begin = a.pool.Items.BeginDetached
	}
	result, at := begin(x.key, a.out.ID(), x.must)
	switch {
	case !result.Waits(x.must):
		return result, nil
	case result == itemset.Waiting:
		result, err := a.processSpooled(ctx, x, at)
		return result, fatalOf(err)
	}
	return a.processUnlisted(ctx, x)
}

// processSpooled processes an additional item that is in an item spool.
func (a *objectProcessor) processSpooled(ctx context.Context, x *additionalItem, at itemset.Place) (itemset.Result, error) {
	it, err := a.readSpooled(at)
	if err != nil {
		return itemset.Unknown, err
	}
	later := a.pool.Again // nothing was listed
	return a.processObject(ctx, x.key, &processedObject{SpooledItem: it, depth: x.depth + 1, detached: x.detached, extra: later, live: later})
}

// processUnlisted reads an additional item by its name and processes it. The action that names it may have
// created it, after the revision of the lists.
func (a *objectProcessor) processUnlisted(ctx context.Context, x *additionalItem) (itemset.Result, error) {
	found, err := a.pool.Finder.ReadMade(ctx, &x.res, x.item)
	if ctx.Err() != nil {
		return itemset.Unknown, &fatalError{context.Cause(ctx)}
	}
	if err != nil {
		a.pool.Items.End(x.key, itemset.Failed)
		return itemset.Failed, err
	}
	if result := a.pool.Finder.FilterResult(found, x.must); result != itemset.Unknown {
		a.pool.Items.End(x.key, result)
		return result, nil
	}
	s := extraOf(found)
	s.depth, s.detached = x.depth+1, x.detached
	result, err := a.processObject(ctx, x.key, s)
	return result, fatalOf(err)
}
