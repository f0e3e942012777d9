package selection

import "k8s.io/apimachinery/pkg/runtime/schema"

// resourceScope is which resources a list may name.
type resourceScope int

const (
	anyScope resourceScope = iota
	clusterScope
	namespaceScope
)

// scopedList is a list of resources of one scope, under the name of its field.
type scopedList struct {
	ResourceSet
	field string
	// strangers are names of resources of the other scope, which are dropped as Velero does.
	strangers []string
}

func newScopedList(field string, names []string, r Resolver, s resourceScope) scopedList {
	l := scopedList{field: field, ResourceSet: ResourceSet{named: make(map[schema.GroupResource]struct{}, len(names))}}
	for _, name := range names {
		known := len(l.unknown)
		gr, namespaced, ok := l.takeName(name, r)
		switch {
		case !ok:
		case len(l.unknown) == known && (s == clusterScope && namespaced || s == namespaceScope && !namespaced):
			l.strangers = append(l.strangers, name)
		default:
			l.named[gr] = struct{}{}
		}
	}
	return l
}

// resourceList is a pair of resolved include and exclude lists.
type resourceList struct {
	given   bool // an include list was given, even if nothing of it was resolved
	in, out scopedList
}

func newList(in, out scopedList, includes []string) resourceList {
	return resourceList{given: len(includes) > 0, in: in, out: out}
}

// includesResource is the whole decision of one pair of lists.
func (l *resourceList) includesResource(gr schema.GroupResource) bool {
	if l.out.Has(gr) {
		return false
	}
	return !l.given || l.in.Has(gr)
}

// isEmpty is true when neither list was given.
func (l *resourceList) isEmpty() bool { return !l.given && l.out.IsEmpty() }

// mayName reports whether an included name may be one of a group version whose resources are not
// known.
func (l *resourceList) mayName(gv schema.GroupVersion) bool {
	return !l.out.hasGroup(gv.Group) && l.in.mayHave(gv)
}

// mayInclude reports whether resources of a group version that are not known may be included.
func (l *resourceList) mayInclude(gv schema.GroupVersion) bool {
	return !l.out.hasGroup(gv.Group) && (!l.given || l.in.mayHave(gv))
}

// selectsEverything is true when the lists leave nothing out.
func (l *resourceList) selectsEverything() bool {
	return l.out.IsEmpty() && (l.in.all || !l.given)
}
