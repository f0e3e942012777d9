package collect

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/acting"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// itemReading reads items into the item spool of a writer.
type itemReading struct {
	finder   *plan.Finder
	items    *itemset.Set
	out      *partwriter.Writer
	progress *partwriter.Counter
}

// rereadItems reads the items that no earlier holder read, and makes all of them durable.
func (r *collectRun) rereadItems(ctx context.Context, read *itemReading, items []action.Item) error {
	for r.afterwards.Read < len(items) && !r.workers.stop.Requested() {
		if err := read.readItem(ctx, items[r.afterwards.Read]); err != nil {
			return err
		}
		r.afterwards.Read++
		if read.out.Full() {
			if err := read.out.Seal(); err != nil {
				return err
			}
		}
	}
	return r.workers.flushWriters(ctx)
}

// readItem reads one item, which waits then. One that does not exist is a warning, one that cannot be
// read an error of the backup: what was stored of it before stays. An error ends the job.
func (r *itemReading) readItem(ctx context.Context, item action.Item) error {
	res, item, err := r.finder.Locate(item)
	if err != nil {
		return r.out.Fail(partwriter.EntryAbout(item.GroupResource, item.Namespace, item.Name, acting.NotStoredAgain, err))
	}
	key := itemset.KeyOf(res.Kind.GroupKind(), item.Namespace, item.Name)
	if r.items.Result(key) != itemset.Unknown {
		return nil // by another name of its resource
	}
	found, err := r.finder.Read(ctx, &res, item)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		r.items.SetResult(itemset.Failed, key)
		return r.out.Fail(partwriter.EntryAbout(item.GroupResource, item.Namespace, item.Name, acting.NotStoredAgain, err))
	}
	switch result := r.finder.FilterResult(found, true); result {
	case itemset.Unknown:
		return r.spoolObject(key, found)
	case itemset.Absent:
		r.items.SetResult(result, key)
		return r.out.Warn(partwriter.EntryAbout(item.GroupResource, item.Namespace, item.Name,
			"an item that an operation named does not exist any more: it is as it was stored before", nil))
	default:
		r.items.SetResult(result, key)
		return nil
	}
}

// spoolObject puts an object into the item spool.
func (r *itemReading) spoolObject(key itemset.Key, found *plan.FoundObject) error {
	spool, number, err := r.out.Spool()
	if err != nil {
		return err
	}
	offset, err := spool.Add(&found.Item)
	if err != nil {
		return fmt.Errorf("spool %s: %w", partwriter.ObjectKey(found.Item.Namespace, found.Item.Name), err)
	}
	r.items.Hold(key, itemset.Place{File: number, Offset: uint32(offset)}) //nolint:gosec // parts are smaller
	r.progress.Hold(1)
	return nil
}

// noteMissedActions notes the actions that were bound when the backup was collected and are not now, unless
// that is noted, and returns the notes.
func (r *collectRun) noteMissedActions(before []string, bound *actionset.Bound, noted []string) (missing []string, err error) {
	now := bound.Names()
	for _, name := range before {
		text := fmt.Sprintf("action %s is missing: items that operations named are stored again without what it changes", name)
		if slices.Contains(now, name) || slices.Contains(noted, name) {
			continue // the second: it is there and does not answer
		}
		missing = append(missing, text)
		if slices.Contains(noted, text) {
			continue
		}
		if err := r.workers.writers[0].Fail(joblog.Entry{Message: text}); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// postOperation returns the progress with the items of operations for the records; nil while a
// backup is collected.
func (r *collectRun) postOperation() *checkpoint.PostOperation {
	if r.afterwards == nil {
		return nil
	}
	state := *r.afterwards
	return &state
}
