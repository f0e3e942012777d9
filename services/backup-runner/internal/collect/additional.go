package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/action"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

// maxDepth bounds how many objects wait for one another: each of them is in memory
// until those it asked for are done. The last of them goes on without waiting.
const maxDepth = 64

var (
	errNotServed  = errors.New("the cluster does not serve this resource")
	errFailed     = errors.New("it could not be backed up")
	errUndeclared = errors.New("the action was not expected to ask for this resource")
	errNameless   = errors.New("namespace: must be given for this resource")
)

// request says how objects are to be backed up with another.
type request struct {
	by   string // an action
	must bool   // past the filters
}

// Additional implements chain.Host: it backs up what an action asked for with the
// object, each once per backup. An error is one of the object, or a *fatalError.
func (t *turn) Additional(ctx context.Context, by string, items []action.Item, must bool) error {
	req := request{by: by, must: must}
	for _, item := range items {
		if err := t.with(ctx, t.subject, &req, item); err != nil {
			return fmt.Errorf("action %s: Execute: additional item %s: %w", by, item, err)
		}
	}
	return nil
}

// with backs up one additional item.
func (a *actor) with(ctx context.Context, s *subject, req *request, item action.Item) error {
	res, item, err := a.run.locate(item)
	if err != nil {
		return err
	}
	if !a.run.bound.counts(item.GroupResource) {
		return errUndeclared
	}
	register, key := a.run.bound.register, known.KeyOf(res.Kind.GroupKind(), item.Namespace, item.Name)
	for {
		if !req.must && register.Fate(key) == known.Unknown && !a.run.admits(&res, item.Namespace) {
			return nil
		}
		if s.depth == maxDepth && register.Fate(key).Waits(req.must) {
			if register.Fate(key) != known.Waiting { // else it has a turn of its own
				a.later = append(a.later, later{by: s.names(), request: *req, item: item})
			}
			return nil
		}
		aside := a.run.bound.formsBlocks(item.GroupResource)
		begin := register.Begin
		if aside {
			begin = register.BeginAside
		}
		fate, at := begin(key, a.id, req.must)
		if fate.Waits(req.must) {
			fate, err = a.extra(ctx, &extra{res: res, item: item, key: key, place: at, fate: fate, must: req.must, aside: aside, depth: s.depth})
			if err != nil {
				return err
			}
		}
		switch fate {
		case known.Failed:
			return errFailed
		case known.Absent:
			s.warnings = append(s.warnings, fmt.Sprintf("action %s asks for %s, which does not exist", req.by, item))
			return nil
		case known.Busy:
			ended, err := register.Wait(ctx, key, a.id)
			if err != nil {
				return &fatalError{err}
			}
			if !ended {
				return nil // they ask for one another: this one does not wait
			}
		default:
			return nil
		}
	}
}

// extra is an additional item that Begin gave.
type extra struct {
	res   resource.Resource
	item  action.Item
	key   known.Key
	place known.Place
	fate  known.Fate // before
	must  bool
	aside bool
	depth int // of the object that needs it
}

// extra processes an additional item. An error is one of the object that needs it,
// or a *fatalError.
func (a *actor) extra(ctx context.Context, x *extra) (known.Fate, error) {
	register := a.run.bound.register
	if x.fate == known.Waiting {
		fate, err := a.waiting(ctx, x)
		return fate, fatal(err)
	}
	found, err := a.run.read(ctx, &x.res, x.item)
	if ctx.Err() != nil {
		return known.Unknown, &fatalError{context.Cause(ctx)}
	}
	if err != nil {
		register.End(x.key, known.Failed)
		return known.Failed, err
	}
	if fate := a.run.judge(found, x.must); fate != known.Unknown {
		register.End(x.key, fate)
		return fate, nil
	}
	found.subject.depth, found.subject.aside = x.depth+1, x.aside
	fate, err := a.process(ctx, x.key, &found.subject)
	return fate, fatal(err)
}

func fatal(err error) error {
	if err == nil {
		return nil
	}
	return &fatalError{err}
}

// locate finds the resource that an action named, by whichever of its names.
func (r *run) locate(item action.Item) (resource.Resource, action.Item, error) {
	res, ok := r.Catalog.Lookup(item.GroupResource)
	if !ok {
		var gr schema.GroupResource
		if gr, _, ok = r.Catalog.Resolve(item.GroupResource.String()); ok {
			res, ok = r.Catalog.Lookup(gr)
		}
	}
	switch {
	case !ok:
		return res, item, errNotServed
	case !slices.Contains(res.Verbs, "list"):
		return res, item, errors.New("the cluster does not let this resource be read by name at a revision")
	case res.Namespaced && item.Namespace == "":
		return res, item, errNameless
	case !res.Namespaced:
		item.Namespace = ""
	}
	item.GroupResource = res.GroupResource()
	return res, item, nil
}

// admits reports whether the filters let an additional item in, as far as that can
// be told without reading it. Labels are not compared with the selectors, and a
// cluster-scoped resource only must not be excluded (as in Velero 1.18).
func (r *run) admits(res *resource.Resource, namespace string) bool {
	gr := res.GroupResource()
	if !res.Namespaced {
		return gr == namespaceGR || !r.Filter.ExcludesResource(gr, false)
	}
	return r.Filter.Resource(gr, true) && r.Filter.Namespace(namespace)
}

// appendSorted adds a text that is not there yet.
func appendSorted(list []string, text string) []string {
	at, found := slices.BinarySearch(list, text)
	if found {
		return list
	}
	return slices.Insert(list, at, text)
}
