package dryrun

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// namedItem is an object that an action named.
type namedItem struct {
	by   string // the action
	of   string // the object it named it for
	must bool   // past the filters
	item action.Item
}

// namingHost is an actionset.Host that keeps what actions name.
type namingHost struct {
	p      *planner
	of     string
	object *foundObject
}

// Execute implements actionset.Host.
func (h *namingHost) Execute(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	r, err := actionset.Execute(ctx, a, o, b)
	for _, note := range r.Notes {
		h.object.addReason(note.Message)
	}
	return r, err
}

// Additional implements actionset.Host.
func (h *namingHost) Additional(_ context.Context, by string, items []action.Item, must bool) error {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	for _, item := range items {
		h.p.named = append(h.p.named, namedItem{by: by, of: h.of, must: must, item: item})
	}
	return nil
}

// callActions calls the actions that may be called, and reports whether the object would be stored.
func (p *planner) callActions(ctx context.Context, gr schema.GroupResource, o *foundObject) bool {
	kind := schema.GroupVersionKind{Group: o.row.Group, Version: o.row.Version, Kind: o.row.Kind}
	host := &namingHost{p: p, object: o, of: action.Item{GroupResource: gr, Namespace: o.row.Namespace, Name: o.row.Name}.String()}
	object, err := actionset.ParseObject(kind, o.raw)
	var result actionset.Result
	if err == nil {
		chain := p.safe.Wants(gr).Chain
		result, err = chain.Run(ctx, object, host)
	}
	if err != nil {
		p.addGap(gr, "%s would not be backed up: %v", host.of, err)
		return false
	}
	o.applied = result.Applied
	if result.Changed {
		o.raw = result.Object.Raw
	}
	return result.LeftOut == ""
}

// addNamed adds what actions named and what the actions of these objects name, until nothing is left.
func (p *planner) addNamed(ctx context.Context) error {
	for {
		p.mu.Lock()
		named := p.named
		p.named = nil
		p.mu.Unlock()
		if len(named) == 0 {
			return nil
		}
		for i := range named {
			if err := p.addItem(ctx, &named[i]); err != nil {
				return err
			}
		}
	}
}

// addItem adds one object that an action named, under the rules of a real run.
func (p *planner) addItem(ctx context.Context, n *namedItem) error {
	res, item, err := p.finder.Locate(n.item)
	if err != nil {
		p.addGap(n.item.GroupResource, "%s would not be backed up: action %s names %s: %v", n.of, n.by, n.item, err)
		return nil
	}
	key := itemset.KeyOf(res.Kind.GroupKind(), item.Namespace, item.Name)
	if !p.items.Result(key).Waits(n.must) || !n.must && !p.finder.Admits(&res, item.Namespace) {
		return nil
	}
	found, err := p.finder.Read(ctx, &res, item)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		p.items.SetResult(itemset.Failed, key)
		p.addGap(item.GroupResource, "%s would not be backed up: action %s names %s: %v", n.of, n.by, item, err)
		return nil
	}
	if result := p.finder.FilterResult(found, n.must); result != itemset.Unknown {
		p.items.SetResult(result, key)
		return nil
	}
	p.items.SetResult(itemset.Stored, key)
	m, gr := found.Meta(), res.GroupResource()
	o := p.describeObject(&res.Kind, gr, m, found.Item.Raw, p.others.Wants(gr))
	o.addReason("action " + n.by + " names it for " + n.of)
	o.raw, o.acting = found.Item.Raw, p.safe.Wants(gr).Touch(m, found.Item.Raw)
	stored, err := p.addObject(ctx, gr, &o)
	if stored && err == nil {
		namespaces := map[string]struct{}{}
		if item.Namespace != "" {
			namespaces[item.Namespace] = struct{}{}
		}
		p.facts.AddExtra(gr, namespaces)
	}
	return err
}
