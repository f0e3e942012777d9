package selection

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resourceScope is which resources a list may name.
type resourceScope int

const (
	anyScope resourceScope = iota
	clusterScope
	namespaceScope
)

// resourceList is a pair of resolved include and exclude lists.
type resourceList struct {
	given                  bool // an include list was given, even if nothing of it was resolved
	includeAll, excludeAll bool
	in, out                map[schema.GroupResource]struct{}
	// unknown are included names that no served resource has.
	unknown []schema.GroupResource
}

func newList(includes, excludes []string, r Resolver, s resourceScope) resourceList {
	l := resourceList{given: len(includes) > 0}
	l.includeAll, l.in, l.unknown = resolveNames(includes, r, s)
	l.excludeAll, l.out, _ = resolveNames(excludes, r, s)
	return l
}

// resolveNames turns names into resources. Names of the wrong scope are dropped, as Velero does; unknown
// ones stay literal, so that a kind whose group is down now is still matched by its full name. They
// are returned once more by themselves.
func resolveNames(names []string, r Resolver, s resourceScope) (all bool, set map[schema.GroupResource]struct{}, unknown []schema.GroupResource) {
	set = make(map[schema.GroupResource]struct{}, len(names))
	for _, name := range names {
		if name == All {
			all = true
			continue
		}
		gr, namespaced, ok := r.Resolve(name)
		if !ok {
			gr = schema.ParseGroupResource(strings.ToLower(name))
			unknown = append(unknown, gr)
		} else if (s == clusterScope && namespaced) || (s == namespaceScope && !namespaced) {
			continue
		}
		set[gr] = struct{}{}
	}
	return all, set, unknown
}

// includesResource is the whole decision of one pair of lists.
func (l *resourceList) includesResource(gr schema.GroupResource) bool {
	if l.excludesResource(gr) {
		return false
	}
	return !l.given || l.includesByName(gr)
}

func (l *resourceList) includesByName(gr schema.GroupResource) bool {
	if l.includeAll {
		return true
	}
	_, ok := l.in[gr]
	return ok
}

func (l *resourceList) excludesResource(gr schema.GroupResource) bool {
	if l.excludeAll {
		return true
	}
	_, ok := l.out[gr]
	return ok
}

// isEmpty is true when neither list was given.
func (l *resourceList) isEmpty() bool { return !l.given && !l.excludeAll && len(l.out) == 0 }

// mayName reports whether an included name may be one of a group version whose resources are not
// known: it means every resource, or none that is served, in any of the forms that a Resolver
// accepts ("foos", "foos.example", "foos.v1.example.com").
func (l *resourceList) mayName(gv schema.GroupVersion) bool {
	return !l.excludeAll && (l.includeAll || slices.ContainsFunc(l.unknown, func(name schema.GroupResource) bool {
		return strings.HasPrefix(gv.Group, name.Group) || name.Group == gv.Version+"."+gv.Group
	}))
}

// mayInclude reports whether resources of a group version that are not known may be included.
func (l *resourceList) mayInclude(gv schema.GroupVersion) bool {
	return !l.excludeAll && (!l.given || l.mayName(gv))
}

// selectsEverything is true when the lists leave nothing out.
func (l *resourceList) selectsEverything() bool {
	return !l.excludeAll && len(l.out) == 0 && (l.includeAll || !l.given)
}
