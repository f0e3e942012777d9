package acting

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/chain"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/itemblock"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/lookup"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/remark"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemspool"
)

// actor processes objects with the actions they match, into one writer. Used by one goroutine.
type actor struct {
	pool  *Pool
	out   *partwriter.Writer
	later []later // additional items that were put off
	// hooks are the Pods whose hooks the block is between, own its members; nil without hooks.
	hooks map[itemset.Key]*podhook.Pod
	own   map[itemset.Key]struct{}
}

// subject is an object that is processed.
type subject struct {
	itemspool.Item
	// extra objects are not of the backup's selection: an action asked for them.
	extra bool
	// live objects were read outside the cut.
	live bool
	// detached objects may have a block, and are not processed with it.
	detached bool
	depth    int // how many objects asked for one another before this one
	// warnings and errors are noted with the result of the object, never without it: a later holder
	// would have them again.
	warnings []string
	errors   []error
}

// extraOf is the subject of an object that was read by its name.
func extraOf(o *lookup.Object) *subject { return &subject{Item: o.Item, extra: true, live: o.Live} }

// object names an object in a record.
func object(it *itemspool.Item) checkpoint.Object {
	return checkpoint.Object{Group: it.Group, Kind: it.Kind, Namespace: it.Namespace, Name: it.Name}
}

// fatalError ends the job, and is no matter of the object.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

func fatal(err error) error {
	if err == nil {
		return nil
	}
	return &fatalError{err}
}

// member processes an object of a block, unless another worker did or does.
func (a *actor) member(ctx context.Context, m *itemblock.Member) error {
	items := a.pool.Items
	was, at := items.Begin(m.Key, a.out.ID(), false)
	if !was.Waits(false) {
		a.join(m)
		return a.warn(&subject{Item: m.Named, errors: m.Errors})
	}
	if was == itemset.Waiting {
		it, err := a.take(at)
		if err != nil {
			return err
		}
		_, err = a.process(ctx, m.Key, &subject{Item: it, errors: m.Errors})
		return err
	}
	named := &m.Item
	found, err := a.pool.Finder.Read(ctx, &m.Resource, *named)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		items.End(m.Key, itemset.Failed)
		return a.out.Fail(remark.About(named.GroupResource, named.Namespace, named.Name, "an object of an item block could not be read: it is not backed up", err))
	}
	if result := a.pool.Finder.Judge(found, false); result != itemset.Unknown {
		items.End(m.Key, result)
		if result != itemset.Absent {
			return nil
		}
		return a.out.Warn(remark.About(named.GroupResource, named.Namespace, named.Name, "an action puts this object into an item block, and it does not exist", nil))
	}
	s := extraOf(found)
	s.errors = m.Errors
	_, err = a.process(ctx, m.Key, s)
	return err
}

// take reads an object that waited.
func (a *actor) take(at itemset.Place) (itemspool.Item, error) {
	it, err := itemspool.Read(a.pool.Spools.Path(at.File), int64(at.Offset))
	if err == nil {
		a.pool.Progress.Hold(-1)
	}
	return it, err
}

// join notes, with the block it is in, that an object which was processed detached has been asked
// for its block.
func (a *actor) join(m *itemblock.Member) {
	if !m.Asked {
		return
	}
	a.pool.Items.Join(m.Key)
	record, o := &a.out.Record, object(&m.Named)
	if i := slices.Index(record.Detached, o); i >= 0 {
		record.Detached = slices.Delete(record.Detached, i, i+1)
		return
	}
	record.Joined = append(record.Joined, o)
}

// process runs the actions of an object that Begin gave, and stores what they made of it. An error
// is one that ends the job.
func (a *actor) process(ctx context.Context, key itemset.Key, s *subject) (itemset.Result, error) {
	var refused error
	if pod := a.hooks[key]; pod != nil {
		if err := a.tell(pod); err != nil {
			return itemset.Unknown, err
		}
		refused = pod.Refused
	}
	result, err := a.decide(ctx, s, refused)
	if err == nil {
		err = a.out.Drain()
	}
	if err != nil {
		return itemset.Unknown, err
	}
	if s.detached {
		a.out.Record.Detached = append(a.out.Record.Detached, object(&s.Item))
	}
	a.pool.Items.End(key, result)
	return result, nil
}

// decide runs the actions and stores or skips the object by their result. One whose pre hooks
// failed is not stored.
func (a *actor) decide(ctx context.Context, s *subject, refused error) (itemset.Result, error) {
	if refused != nil {
		return a.failed(s, "a pre hook failed: the object is not backed up", refused)
	}
	gr := s.GroupResource()
	o, err := chain.Parse(s.GroupVersionKind(), s.Raw)
	if err != nil {
		return a.failed(s, "object cannot be read", err)
	}
	result := chain.Result{Object: o}
	if w := a.pool.Actions.Wants(gr); w != nil {
		result, err = w.Chain.Run(ctx, o, &turn{actor: a, subject: s})
	}
	var broken *fatalError
	switch {
	case ctx.Err() != nil:
		return itemset.Unknown, context.Cause(ctx)
	case errors.As(err, &broken):
		return itemset.Unknown, broken.err
	}
	if err := a.warn(s); err != nil {
		return itemset.Unknown, err
	}
	message := "the object is backed up, but an action did not come to its end"
	if err != nil || result.LeftOut != "" {
		message = "the object is not backed up, and an action did not come to its end"
	}
	for _, problem := range result.Problems {
		if err := a.out.Fail(remark.About(gr, s.Namespace, s.Name, message, problem)); err != nil {
			return itemset.Unknown, err
		}
	}
	switch {
	case err != nil:
		return a.failed(s, "an action failed: the object is not backed up", err)
	case result.LeftOut != "":
		return itemset.LeftOut, a.leaveOut(s, result.LeftOut)
	}
	return a.store(s, &result)
}

// warn notes the warnings and errors about an object.
func (a *actor) warn(s *subject) error {
	for _, message := range s.warnings {
		if err := a.out.Warn(remark.About(s.GroupResource(), s.Namespace, s.Name, message, nil)); err != nil {
			return err
		}
	}
	for _, cause := range s.errors {
		if err := a.out.Fail(remark.About(s.GroupResource(), s.Namespace, s.Name, "what belongs to the object's item block is unknown", cause)); err != nil {
			return err
		}
	}
	return nil
}
