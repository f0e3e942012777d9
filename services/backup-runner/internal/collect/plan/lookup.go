package plan

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

var (
	errNotServed = errors.New("the cluster does not serve this resource")
	errNameless  = errors.New("namespace: must be given for this resource")
	errUnlisted  = errors.New("the cluster does not let this resource be read by name at a revision")
)

// FindLister lists raw objects; rawlist.Client is one.
type FindLister interface {
	List(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error
}

// Finder finds objects of one backup. Safe for concurrent use.
type Finder struct {
	Lister  FindLister
	Cut     *cut.Cut
	Catalog *resource.Catalog
	Filter  *selection.Filter
	// Later: what is read is of another cut than that of the backup.
	Later bool
}

// Locate finds the resource that an action named, by whichever of its names. The item it returns
// names it as the catalog does.
func (f *Finder) Locate(item action.Item) (resource.Resource, action.Item, error) {
	res, ok := f.Catalog.Lookup(item.GroupResource)
	if !ok {
		var gr schema.GroupResource
		if gr, _, ok = f.Catalog.Resolve(item.GroupResource.String()); ok {
			res, ok = f.Catalog.Lookup(gr)
		}
	}
	switch {
	case !ok:
		return res, item, errNotServed
	case !slices.Contains(res.Verbs, "list"):
		return res, item, errUnlisted
	case res.Namespaced && item.Namespace == "":
		return res, item, errNameless
	case !res.Namespaced:
		item.Namespace = ""
	}
	item.GroupResource = res.GroupResource()
	return res, item, nil
}

// Admits reports whether the filters let an additional item in, as far as that is known without
// reading it. Labels are not compared with the selectors, and a cluster-scoped resource only must
// not be excluded (as in Velero 1.18).
func (f *Finder) Admits(res *resource.Resource, namespace string) bool {
	gr := res.GroupResource()
	if !res.Namespaced {
		return gr == Namespaces || !f.Filter.ExcludesResource(gr, false)
	}
	return f.Filter.Resource(gr, true) && f.Filter.Namespace(namespace)
}

// FilterResult returns the result of an object that was read, Unknown for one to be processed. With must
// the filters do not count.
func (f *Finder) FilterResult(o *FoundObject, must bool) itemset.Result {
	selected := selection.Object{Namespace: o.meta.Namespace, Name: o.meta.Name, Labels: &o.meta.Labels, Deleting: o.meta.Deleting()}
	switch {
	case !o.Exists:
		return itemset.Absent
	case selected.Deleting, !must && !f.Filter.Item(selected):
		return itemset.Unwanted
	}
	return itemset.Unknown
}
