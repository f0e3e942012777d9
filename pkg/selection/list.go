package selection

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// scope tells which resources a list may name.
type scope int

const (
	anyScope scope = iota
	clusterScope
	namespaceScope
)

// list is a pair of resolved include and exclude lists.
type list struct {
	given                  bool // an include list was given, even if nothing of it was resolved
	includeAll, excludeAll bool
	in, out                map[schema.GroupResource]struct{}
}

func newList(includes, excludes []string, r Resolver, s scope) list {
	l := list{given: len(includes) > 0}
	l.includeAll, l.in = resolve(includes, r, s)
	l.excludeAll, l.out = resolve(excludes, r, s)
	return l
}

// resolve turns names into resources. Names of the wrong scope are dropped, as
// Velero does; unknown ones stay literal, so that a kind whose group is down now
// is still matched by its full name.
func resolve(names []string, r Resolver, s scope) (all bool, set map[schema.GroupResource]struct{}) {
	set = make(map[schema.GroupResource]struct{}, len(names))
	for _, name := range names {
		if name == All {
			all = true
			continue
		}
		gr, namespaced, ok := r.Resolve(name)
		if !ok {
			gr = schema.ParseGroupResource(strings.ToLower(name))
		} else if (s == clusterScope && namespaced) || (s == namespaceScope && !namespaced) {
			continue
		}
		set[gr] = struct{}{}
	}
	return all, set
}

// includes is the whole decision of one pair of lists.
func (l *list) includes(gr schema.GroupResource) bool {
	if l.excludes(gr) {
		return false
	}
	return !l.given || l.includesByName(gr)
}

func (l *list) includesByName(gr schema.GroupResource) bool {
	if l.includeAll {
		return true
	}
	_, ok := l.in[gr]
	return ok
}

func (l *list) excludes(gr schema.GroupResource) bool {
	if l.excludeAll {
		return true
	}
	_, ok := l.out[gr]
	return ok
}

// empty is true when neither list was given.
func (l *list) empty() bool { return !l.given && !l.excludeAll && len(l.out) == 0 }

// everything is true when the lists leave nothing out.
func (l *list) everything() bool {
	return !l.excludeAll && len(l.out) == 0 && (l.includeAll || !l.given)
}
