package collect

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/objmeta"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/chain"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

// Actions look at the objects of one backup before they are stored. The zero value
// has none.
type Actions struct {
	// Items may change what is stored, and run in this order.
	Items []action.BackupItem
	// Blocks say which objects are processed together.
	Blocks []action.ItemBlock
	// Asks are the only resources of which the actions name objects, so that
	// nothing is remembered of others. Empty means any.
	Asks []schema.GroupResource
	// Warnings say what is not among the actions as it should be; the backup's first
	// holder notes them.
	Warnings []string
	// Errors say what the backup does without, as long as it is not known what that
	// would have changed.
	Errors []string
	// Collateral tells of an error of Items that the call may have failed because
	// of another one. Nil is always false.
	Collateral func(error) bool
	// Unsent tells of an error of Items that the call certainly was not made. Nil is
	// always false.
	Unsent func(error) bool
	// Lines has what the actions' plugins log; nil if nobody does.
	Lines *Lines
	// Close, if not nil, is called once no action is called any more.
	Close func()
}

func (a *Actions) close() {
	if a.Close != nil {
		a.Close()
	}
}

func (a *Actions) unsent(err error) bool { return a.Unsent != nil && a.Unsent(err) }

// bound are the actions that answered what they apply to.
type bound struct {
	backup *action.Backup
	asks   []schema.GroupResource
	items  []chain.Item
	blocks []action.Bound[action.ItemBlock]

	// register knows what became of each object; nil while no action may ask.
	register *known.Register

	mu    sync.Mutex
	kinds map[schema.GroupResource]*wants
}

// any reports whether there is an action, or work left for one.
func (b *bound) any() bool { return b.register != nil }

// counts reports whether actions may ask for objects of the resource.
func (b *bound) counts(gr schema.GroupResource) bool {
	return len(b.asks) == 0 || slices.Contains(b.asks, gr)
}

// wants is what actions see of the objects of one resource. Immutable.
type wants struct {
	chain  chain.Chain
	blocks []action.Bound[action.ItemBlock]
}

// wants returns what actions see of the resource, nil for nothing.
func (b *bound) wants(gr schema.GroupResource) *wants {
	if len(b.items)+len(b.blocks) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w, known := b.kinds[gr]; known {
		return w
	}
	w := &wants{chain: chain.Chain{Resource: gr, Actions: of(b.items, gr), Backup: b.backup}, blocks: of(b.blocks, gr)}
	if len(w.chain.Actions)+len(w.blocks) == 0 {
		w = nil
	}
	b.kinds[gr] = w
	return w
}

// formsBlocks reports whether actions may relate objects to those of the resource.
func (b *bound) formsBlocks(gr schema.GroupResource) bool {
	w := b.wants(gr)
	return w != nil && len(w.blocks) > 0
}

func of[A action.Action](all []action.Bound[A], gr schema.GroupResource) []action.Bound[A] {
	return slices.DeleteFunc(slices.Clone(all), func(b action.Bound[A]) bool { return !b.Resource(gr) })
}

// touch reports whether an action may want the object, as far as that is known
// without decoding it.
func (w *wants) touch(m *objmeta.Meta, raw []byte) bool {
	if w == nil {
		return false
	}
	for i := range w.chain.Actions {
		if chain.Matches(&w.chain.Actions[i], m, raw) {
			return true
		}
	}
	for i := range w.blocks {
		if chain.Matches(&w.blocks[i], m, raw) {
			return true
		}
	}
	return false
}

// bind asks the actions what they apply to. One that does not answer is an error
// of the backup, noted unless an earlier holder did; all of these are returned.
func (w *worker) bind(ctx context.Context, noted []string) (unbound []string, err error) {
	r := w.run
	b := &r.bound
	for _, missing := range r.Actions.Errors {
		unbound = append(unbound, missing)
		if slices.Contains(noted, missing) {
			continue
		}
		if err := w.fail(joblog.Entry{Message: missing}); err != nil {
			return nil, err
		}
	}
	if len(r.Actions.Items)+len(r.Actions.Blocks)+len(r.past.held) == 0 {
		return unbound, w.drain()
	}
	b.register, b.kinds, b.asks = known.New(), map[schema.GroupResource]*wants{}, r.Actions.Asks
	if b.backup, err = action.NewBackup(r.Backup); err != nil {
		return nil, err
	}
	var failures []failure
	if b.items, err = ask(ctx, r, r.Actions.Items, &failures); err != nil {
		return nil, err
	}
	if b.blocks, err = ask(ctx, r, r.Actions.Blocks, &failures); err != nil {
		return nil, err
	}
	for _, f := range failures {
		unbound = append(unbound, f.action)
		if slices.Contains(noted, f.action) {
			continue
		}
		if err := w.fail(joblog.Entry{Message: "an action was not run: what it applies to is unknown", Err: f.err.Error()}); err != nil {
			return nil, err
		}
	}
	return unbound, w.drain()
}

// failure is an action that did not say what it applies to.
type failure struct {
	action string
	err    error
}

// ask binds one action after the other, to know which of them fails.
func ask[A action.Action](ctx context.Context, r *run, all []A, failures *[]failure) ([]action.Bound[A], error) {
	var out []action.Bound[A]
	for _, a := range all {
		one, errs := action.Bind(ctx, []A{a}, r.Catalog)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case len(errs) > 0 && r.stopping():
			return nil, ErrStopped // perhaps that is why, and the next holder asks again
		}
		for _, err := range errs {
			*failures = append(*failures, failure{a.Name(), err})
		}
		out = append(out, one...)
	}
	return out, nil
}
