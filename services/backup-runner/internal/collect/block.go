package collect

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/action"
	"github.com/holdfast-io/holdfast/pkg/objmeta"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/chain"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/held"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

// block are objects that one worker processes, one after the other.
type block struct{ members []member }

// member is an object of a block. What no list of the backup selected is read again
// when it is processed, and not kept.
type member struct {
	key  known.Key
	res  resource.Resource
	item action.Item

	named  held.Item // without its body, once it was looked at
	asked  bool      // its actions told what they relate to it
	errors []error   // what they could not tell
}

// arranger puts what is held into blocks: each object into one, with everything its
// actions relate to it. Objects that no action looks at are stored already, at the
// revision of the rest, and need no block. Used by one goroutine.
type arranger struct{ run *run }

// errArranged ends the reading of a file when the run is told to stop.
var errArranged = errors.New("no more blocks")

// arrange sends the blocks to the queue, in the order in which objects were held.
func (r *arranger) arrange(ctx context.Context, queue chan<- block) error {
	r.run.bound.register.Round()
	for number, path := range r.run.held.all() {
		if path == "" {
			continue // a page was rolled back, and nothing else was in it
		}
		err := held.Each(path, func(offset int64, it *held.Item) error {
			if r.run.stopping() {
				return errArranged
			}
			key := known.KeyOf(schema.GroupKind{Group: it.Group, Kind: it.Kind}, it.Namespace, it.Name)
			if !r.run.bound.register.PendingAt(key, known.Place{File: uint32(number), Offset: uint32(offset)}) { //nolint:gosec // see hold
				return nil
			}
			return r.one(ctx, key, queue)
		})
		if errors.Is(err, errArranged) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// one sends the block of an object to the queue, unless it is in one.
func (r *arranger) one(ctx context.Context, key known.Key, queue chan<- block) error {
	b := block{members: []member{{key: key}}}
	if len(r.run.bound.blocks) > 0 {
		if !r.run.bound.register.Enter(key) {
			return nil
		}
		if err := r.complete(ctx, &b); err != nil {
			return err
		}
	}
	select {
	case queue <- b:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// complete adds what the members relate to, and what that relates to.
func (r *arranger) complete(ctx context.Context, b *block) error {
	for i := 0; i < len(b.members); i++ {
		if !r.asks(&b.members[i]) {
			continue
		}
		it, found, err := r.look(ctx, &b.members[i])
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		items, err := r.related(ctx, &b.members[i], &it)
		it.Raw = nil
		b.members[i].named = it
		if err != nil {
			return err
		}
		b.members[i].asked = true
		for _, item := range items {
			if m, ok := r.admit(&b.members[i], item); ok {
				b.members = append(b.members, m)
			}
		}
	}
	return nil
}

// asks reports whether actions may relate something to a member, as far as that is
// known without looking at it.
func (r *arranger) asks(m *member) bool {
	if _, done := r.run.past.joined[m.key]; done {
		return false
	}
	return m.item.Name == "" || r.run.bound.formsBlocks(m.item.GroupResource)
}

// look returns the object of a member: as it was listed, or read by its name.
func (r *arranger) look(ctx context.Context, m *member) (held.Item, bool, error) {
	if at, ok := r.run.bound.register.Place(m.key); ok {
		it, err := held.Read(r.run.held.path(at.File), int64(at.Offset))
		return it, err == nil, err
	}
	if m.item.Name == "" {
		return held.Item{}, false, nil // it is nobody's any more
	}
	found, err := r.run.read(ctx, &m.res, m.item)
	switch {
	case ctx.Err() != nil:
		return held.Item{}, false, context.Cause(ctx)
	case err != nil:
		return held.Item{}, false, nil // processing it fails and says so
	case !found.found:
		return held.Item{}, false, nil
	}
	return found.subject.Item, r.run.judge(found, false) == known.Unknown, nil
}

// related asks the actions that match the object. What they cannot answer is an
// error of the backup.
func (r *arranger) related(ctx context.Context, m *member, it *held.Item) ([]action.Item, error) {
	s := subject{Item: *it}
	w := r.run.bound.wants(s.resource())
	if w == nil || len(w.blocks) == 0 {
		return nil, nil
	}
	o, err := chain.Parse(s.kind(), it.Raw)
	if err != nil {
		return nil, nil //nolint:nilerr // processing it fails and says so
	}
	object := action.FromJSON(o.Raw)
	var out []action.Item
	for i := range w.blocks {
		items, err := relatedBy(ctx, &w.blocks[i], o.Meta, object, r.run.bound.backup)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			m.errors = append(m.errors, err)
			continue
		}
		out = append(out, items...)
	}
	return out, nil
}

func relatedBy(ctx context.Context, b *action.Bound[action.ItemBlock], m *objmeta.Meta, o *action.Object, backup *action.Backup) (items []action.Item, err error) {
	name := b.Action.Name()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("action %s: GetRelatedItems: panic: %v", name, p)
		}
	}()
	raw, err := o.JSON()
	if err != nil || !chain.Matches(b, m, raw) {
		return nil, err
	}
	wants, err := b.Accepts(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("action %s: AppliesTo: %w", name, err)
	}
	if !wants {
		return nil, nil
	}
	return b.Action.Related(ctx, o, backup)
}

// admit makes a related item a member of the block, unless it is in one, was
// processed in one, or the filters do not let it in. One that was processed aside
// is a member for what its own actions relate to it.
func (r *arranger) admit(by *member, item action.Item) (member, bool) {
	res, item, err := r.run.locate(item)
	if err != nil {
		by.errors = append(by.errors, fmt.Errorf("related item %s: %w", item, err))
		return member{}, false
	}
	if !r.run.bound.counts(item.GroupResource) {
		by.errors = append(by.errors, fmt.Errorf("related item %s: %w", item, errUndeclared))
		return member{}, false
	}
	m := member{key: known.KeyOf(res.Kind.GroupKind(), item.Namespace, item.Name), res: res, item: item}
	switch r.run.bound.register.Fate(m.key) {
	case known.Waiting:
	case known.Unknown:
		if !r.run.admits(&res, item.Namespace) {
			return member{}, false
		}
	default:
		if !r.run.bound.register.Aside(m.key) {
			return member{}, false
		}
	}
	return m, r.run.bound.register.Enter(m.key)
}
