package acting

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// objectProcessor processes objects with the actions they match, into one writer. Used by one goroutine.
type objectProcessor struct {
	pool  *Pool
	out   *partwriter.Writer
	later []postponedItem // additional items that were put off
	// hooks are the Pods whose hooks the block is between, own its members; nil without hooks.
	hooks map[itemset.Key]*podhook.Pod
	own   map[itemset.Key]struct{}
}

// processedObject is an object that is processed.
type processedObject struct {
	itemset.SpooledItem
	// extra objects are not of the backup's selection: an action asked for them.
	extra bool
	// live objects were read outside the cut.
	live bool
	// detached objects may have a block, and are not processed with it.
	detached bool
	depth    int // how many objects asked for one another before this one
	// notes, warnings and errors are noted with the result of the object, never without it: a later holder
	// would have them again.
	notes    []action.Note
	warnings []string
	errors   []error
}

// extraOf is the subject of an object that was read by its name.
func extraOf(o *plan.FoundObject) *processedObject {
	return &processedObject{SpooledItem: o.Item, extra: true, live: o.Live}
}

// recordObject names an object in a record.
func recordObject(it *itemset.SpooledItem) checkpoint.Object {
	return checkpoint.Object{Group: it.Group, Kind: it.Kind, Namespace: it.Namespace, Name: it.Name}
}

// fatalError ends the job, and is no matter of the object.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

func fatalOf(err error) error {
	if err == nil {
		return nil
	}
	return &fatalError{err}
}

// processMember processes an object of a block, unless another worker did or does.
func (a *objectProcessor) processMember(ctx context.Context, m *Member) error {
	items := a.pool.Items
	was, at := items.Begin(m.Key, a.out.ID(), false)
	if !was.Waits(false) {
		a.markJoined(m)
		return a.noteProblems(&processedObject{SpooledItem: m.Named, errors: m.Errors})
	}
	if was == itemset.Waiting {
		it, err := a.readSpooled(at)
		if err != nil {
			return err
		}
		_, err = a.processObject(ctx, m.Key, &processedObject{SpooledItem: it, errors: m.Errors})
		return err
	}
	named := &m.Item
	found, err := a.pool.Finder.Read(ctx, &m.Resource, *named)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		items.End(m.Key, itemset.Failed)
		return a.out.Fail(partwriter.EntryAbout(named.GroupResource, named.Namespace, named.Name, "an object of an item block could not be read: it is not backed up", err))
	}
	if result := a.pool.Finder.FilterResult(found, false); result != itemset.Unknown {
		items.End(m.Key, result)
		if result != itemset.Absent {
			return nil
		}
		return a.out.Warn(partwriter.EntryAbout(named.GroupResource, named.Namespace, named.Name, "an action puts this object into an item block, and it does not exist", nil))
	}
	s := extraOf(found)
	s.errors = m.Errors
	_, err = a.processObject(ctx, m.Key, s)
	return err
}

// readSpooled reads an object that waited.
func (a *objectProcessor) readSpooled(at itemset.Place) (itemset.SpooledItem, error) {
	it, err := itemset.ReadSpooled(a.pool.Spools.Path(at.File), int64(at.Offset))
	if err == nil {
		a.pool.Progress.Hold(-1)
	}
	return it, err
}

// markJoined notes, with the block it is in, that an object which was processed detached has been asked
// for its block.
func (a *objectProcessor) markJoined(m *Member) {
	if !m.Asked {
		return
	}
	a.pool.Items.Join(m.Key)
	record, o := &a.out.Record, recordObject(&m.Named)
	if i := slices.Index(record.Detached, o); i >= 0 {
		record.Detached = slices.Delete(record.Detached, i, i+1)
		return
	}
	record.Joined = append(record.Joined, o)
}

// processObject runs the actions of an object that Begin gave, and stores what they made of it. An error
// is one that ends the job.
func (a *objectProcessor) processObject(ctx context.Context, key itemset.Key, s *processedObject) (itemset.Result, error) {
	var refused error
	if pod := a.hooks[key]; pod != nil {
		if err := a.noteHookMessages(pod); err != nil {
			return itemset.Unknown, err
		}
		refused = pod.Refused
	}
	result, err := a.runActions(ctx, s, refused)
	if err == nil {
		err = a.out.Drain()
	}
	if err != nil {
		return itemset.Unknown, err
	}
	if s.detached {
		a.out.Record.Detached = append(a.out.Record.Detached, recordObject(&s.SpooledItem))
	}
	a.pool.Items.End(key, result)
	return result, nil
}

// runActions runs the actions and stores or skips the object by their result. One whose pre hooks
// failed is not stored.
func (a *objectProcessor) runActions(ctx context.Context, s *processedObject, refused error) (itemset.Result, error) {
	if refused != nil {
		return a.noteFailed(s, "a pre hook failed: the object is not backed up", refused)
	}
	gr := s.GroupResource()
	o, err := actionset.ParseObject(s.GroupVersionKind(), s.Raw)
	if err != nil {
		return a.noteFailed(s, "object cannot be read", err)
	}
	result := actionset.Result{Object: o}
	if w := a.pool.Actions.Wants(gr); w != nil {
		result, err = w.Chain.Run(ctx, o, &objectTurn{actor: a, subject: s})
	}
	var broken *fatalError
	switch {
	case ctx.Err() != nil:
		return itemset.Unknown, context.Cause(ctx)
	case errors.As(err, &broken):
		return itemset.Unknown, broken.err
	}
	if err := a.noteProblems(s); err != nil {
		return itemset.Unknown, err
	}
	message := "the object is backed up, but an action did not come to its end"
	if err != nil || result.LeftOut != "" {
		message = "the object is not backed up, and an action did not come to its end"
	}
	for _, problem := range result.Problems {
		if err := a.out.Fail(partwriter.EntryAbout(gr, s.Namespace, s.Name, message, problem)); err != nil {
			return itemset.Unknown, err
		}
	}
	switch {
	case err != nil:
		return a.noteFailed(s, "an action failed: the object is not backed up", err)
	case result.LeftOut != "":
		return itemset.LeftOut, a.recordLeftOut(s, result.LeftOut)
	}
	return a.storeObject(s, &result)
}

// noteProblems notes the messages about an object.
func (a *objectProcessor) noteProblems(s *processedObject) error {
	for _, note := range s.notes {
		e := partwriter.EntryAbout(s.GroupResource(), s.Namespace, s.Name, note.Message, nil)
		e.Level = note.Level
		if err := a.out.LogEntry(e); err != nil {
			return err
		}
	}
	for _, message := range s.warnings {
		if err := a.out.Warn(partwriter.EntryAbout(s.GroupResource(), s.Namespace, s.Name, message, nil)); err != nil {
			return err
		}
	}
	for _, cause := range s.errors {
		if err := a.out.Fail(partwriter.EntryAbout(s.GroupResource(), s.Namespace, s.Name, "what belongs to the object's item block is unknown", cause)); err != nil {
			return err
		}
	}
	return nil
}
