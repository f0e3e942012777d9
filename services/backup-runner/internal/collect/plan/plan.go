// Package plan decides what a backup lists, in which order, and finds objects that something named: it
// locates their resource, decides whether the filters admit them, and reads them by name at the
// revision of the lists.
package plan

import (
	"context"
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Kind is one kind of the first pass. Its units are made one by one as they are listed: a thousand
// namespaces times all kinds take no memory.
type Kind struct {
	res    resource.Resource
	spread bool // each namespace is listed by itself
}

// Name is what it is called in records.
func (k *Kind) Name() checkpoint.Kind {
	return checkpoint.Kind{Resource: k.res.String(), Spread: k.spread}
}

// Named returns a kind that a record names, which need not be served.
func Named(name checkpoint.Kind) *Kind {
	k := &Kind{spread: name.Spread}
	gr := schema.ParseGroupResource(name.Resource)
	k.res.Kind.Group, k.res.Name = gr.Group, gr.Resource
	return k
}

// First returns what the first pass lists, in collection order: everything but namespaces and the
// definitions of collected custom resources. live is how many namespaces the cluster has.
func First(f *selection.Filter, c *resource.Catalog, live int) []Kind {
	var out []Kind
	for _, res := range c.Backupable(f.Resource) {
		if res.GroupResource() != Namespaces {
			out = append(out, Kind{res: res, spread: listsByNamespace(f, &res, live)})
		}
	}
	return out
}

// wideShare is the share of namespaces from which one list of all of them is cheaper than a list
// for each.
const wideShare = 4

// listsByNamespace reports whether each namespace is listed by itself; otherwise all are at once, and
// objects of other namespaces are passed over.
func listsByNamespace(f *selection.Filter, res *resource.Resource, live int) bool {
	n := len(f.Namespaces())
	return res.Namespaced && !f.AllNamespaces() && !f.AllButSome() && (n <= 1 || n*wideShare < live)
}

// Units returns the units of the kinds.
func Units(kinds []Kind, f *selection.Filter) iter.Seq[Unit] {
	return func(yield func(Unit) bool) {
		for i := range kinds {
			for u := range kinds[i].Units(f) {
				if !yield(u) {
					return
				}
			}
		}
	}
}

// Units returns a unit for each namespace and each label selector.
func (k *Kind) Units(f *selection.Filter) iter.Seq[Unit] {
	namespaces, selectors := []string{""}, f.Selectors()
	if k.spread {
		namespaces = f.Namespaces()
	}
	if len(selectors) == 0 {
		selectors = []labels.Selector{nil}
	}
	return func(yield func(Unit) bool) {
		for _, namespace := range namespaces {
			for i, selector := range selectors {
				if !yield(Unit{Res: k.res, Namespace: namespace, Selector: selector, Before: selectors[:i:i]}) {
					return
				}
			}
		}
	}
}

// ForEach hands the units to workers, which are numbered. A unit is made when a worker is free for it. A worker
// ends with the units, with an error, or when do returns false.
func ForEach(ctx context.Context, workers int, units iter.Seq[Unit], do func(ctx context.Context, worker int, u *Unit) (more bool, err error)) error {
	next, end := iter.Pull(units)
	defer end()
	var turn sync.Mutex
	take := func() (Unit, bool) {
		turn.Lock()
		defer turn.Unlock()
		return next()
	}
	return panics.ForEach(ctx, workers, workers, func(ctx context.Context, worker int) error {
		for u, ok := take(); ok; u, ok = take() {
			if more, err := do(ctx, worker, &u); err != nil || !more {
				return err
			}
		}
		return nil
	})
}
