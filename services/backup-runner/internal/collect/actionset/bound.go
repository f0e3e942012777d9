package actionset

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// Bound are the actions that answered what they apply to. Safe for concurrent use.
type Bound struct {
	// Backup is what actions are called with.
	Backup *action.Backup
	// Hooked reports whether a Pod may have hooks; nil where none has. It is set before anything is
	// asked.
	Hooked func(m *objmeta.Meta) bool

	asks   []schema.GroupResource
	items  []BoundItem
	blocks []action.Bound[action.ItemBlock]

	mu    sync.Mutex
	kinds map[schema.GroupResource]*Wants
}

// Failure is an action whose AppliesTo failed.
type Failure struct {
	Action string
	Err    error
}

// Bind calls AppliesTo of the actions. Those that return an error are failures; an error of Bind
// ends the job.
func (a *Actions) Bind(ctx context.Context, backup *velerov1.Backup, catalog *resource.Catalog, stop plan.StopSignal) (*Bound, []Failure, error) {
	seen, err := action.NewBackup(backup)
	if err != nil {
		return nil, nil, err
	}
	b := &Bound{Backup: seen, asks: a.Asks, kinds: map[schema.GroupResource]*Wants{}}
	var failures []Failure
	if b.items, err = bindActions(ctx, a.Items, catalog, stop, &failures); err != nil {
		return nil, nil, err
	}
	if b.blocks, err = bindActions(ctx, a.Blocks, catalog, stop, &failures); err != nil {
		return nil, nil, err
	}
	return b, failures, nil
}

// bindActions binds one action after the other, to know which of them fails.
func bindActions[A action.Action](ctx context.Context, all []A, catalog *resource.Catalog, signal plan.StopSignal, failures *[]Failure) ([]action.Bound[A], error) {
	var out []action.Bound[A]
	for _, a := range all {
		one, errs := action.Bind(ctx, []A{a}, catalog)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case len(errs) > 0 && signal.Requested():
			return nil, plan.ErrStopped // perhaps the reason; the next holder repeats the call
		}
		for _, err := range errs {
			*failures = append(*failures, Failure{a.Name(), err})
		}
		out = append(out, one...)
	}
	return out, nil
}

// Names returns the names of the actions that change items, sorted.
func (b *Bound) Names() []string {
	names := make([]string, len(b.items))
	for i := range b.items {
		names[i] = b.items[i].Action.Name()
	}
	slices.Sort(names)
	return names
}

// Counts reports whether actions may ask for objects of the resource.
func (b *Bound) Counts(gr schema.GroupResource) bool {
	return len(b.asks) == 0 || slices.Contains(b.asks, gr)
}

// FormBlocks reports whether there are item block actions.
func (b *Bound) FormBlocks() bool { return len(b.blocks) > 0 }

// FormBlocksOf reports whether actions may relate objects to those of the resource.
func (b *Bound) FormBlocksOf(gr schema.GroupResource) bool {
	w := b.Wants(gr)
	return w != nil && len(w.Blocks) > 0
}

// Wants returns which objects of the resource actions match, nil for none.
func (b *Bound) Wants(gr schema.GroupResource) *Wants {
	if len(b.items)+len(b.blocks) == 0 && b.Hooked == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w, known := b.kinds[gr]; known {
		return w
	}
	w := &Wants{Chain: Chain{Resource: gr, Actions: matchingActions(b.items, gr), Backup: b.Backup}, Blocks: matchingActions(b.blocks, gr)}
	if gr == plan.Pods {
		w.Hooked = b.Hooked
	}
	if len(w.Chain.Actions)+len(w.Blocks) == 0 && w.Hooked == nil {
		w = nil
	}
	b.kinds[gr] = w
	return w
}

func matchingActions[A action.Action](all []action.Bound[A], gr schema.GroupResource) []action.Bound[A] {
	return slices.DeleteFunc(slices.Clone(all), func(b action.Bound[A]) bool { return !b.Resource(gr) })
}

// Wants is which objects of one resource actions match. Immutable.
type Wants struct {
	Chain  Chain
	Blocks []action.Bound[action.ItemBlock]
	// Hooked is that of Bound, nil of resources without hooks.
	Hooked func(m *objmeta.Meta) bool
}

// Touch reports whether an action or a hook may match the object, without decoding it. It allocates
// nothing; nil matches nothing.
func (w *Wants) Touch(m *objmeta.Meta, raw []byte) bool {
	if w == nil {
		return false
	}
	if w.Hooked != nil && w.Hooked(m) {
		return true
	}
	for i := range w.Chain.Actions {
		if MatchesObject(&w.Chain.Actions[i], m, raw) {
			return true
		}
	}
	for i := range w.Blocks {
		if MatchesObject(&w.Blocks[i], m, raw) {
			return true
		}
	}
	return false
}
