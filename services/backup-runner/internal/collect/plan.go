package collect

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/pkg/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// kindList is one kind of the first pass. Its units are made one by one as they are
// listed: a thousand namespaces times all kinds take no memory.
type kindList struct {
	res    resource.Resource
	spread bool // each namespace is listed by itself
}

// name is what it is called in records.
func (l *kindList) name() checkpoint.Kind {
	return checkpoint.Kind{Resource: l.res.String(), Spread: l.spread}
}

// plan returns what the first pass lists, in collection order: everything but
// namespaces and the definitions of collected custom resources.
func plan(f *selection.Filter, c *resource.Catalog, live int) []kindList {
	var out []kindList
	for _, res := range c.Backupable(f.Resource) {
		if res.GroupResource() != namespaceGR {
			out = append(out, kindList{res: res, spread: spreads(f, &res, live)})
		}
	}
	return out
}

// wideShare is the share of namespaces from which one list of all of them is
// cheaper than a list for each.
const wideShare = 4

// spreads reports whether each namespace is listed by itself; otherwise all are at
// once, and objects of other namespaces are passed over.
func spreads(f *selection.Filter, res *resource.Resource, live int) bool {
	n := len(f.Namespaces())
	return res.Namespaced && !f.AllNamespaces() && !f.AllButSome() && (n <= 1 || n*wideShare < live)
}

// units returns the units of the lists.
func (r *run) units(lists []kindList) iter.Seq[unit] {
	return func(yield func(unit) bool) {
		for i := range lists {
			for u := range lists[i].units(r.Filter) {
				if !yield(u) {
					return
				}
			}
		}
	}
}

// units returns a unit for each namespace and each label selector.
func (l *kindList) units(f *selection.Filter) iter.Seq[unit] {
	namespaces, selectors := []string{""}, f.Selectors()
	if l.spread {
		namespaces = f.Namespaces()
	}
	if len(selectors) == 0 {
		selectors = []labels.Selector{nil}
	}
	return func(yield func(unit) bool) {
		for _, namespace := range namespaces {
			for i, selector := range selectors {
				if !yield(unit{res: l.res, namespace: namespace, selector: selector, before: selectors[:i:i]}) {
					return
				}
			}
		}
	}
}

// remaining returns the lists that the first holder planned.
func (r *run) remaining(planned []kindList) []kindList {
	return slices.DeleteFunc(planned, func(l kindList) bool { return !slices.Contains(r.past.start.Kinds, l.name()) })
}
