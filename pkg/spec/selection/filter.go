package selection

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// LabelExclude is the label that keeps an object out of every backup when it is "true".
const LabelExclude = "velero.io/exclude-from-backup"

var (
	namespacesResource = schema.GroupResource{Resource: "namespaces"}
	crdResource        = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
)

// Resolver finds the resource a list entry means: plural, singular or short name, with or without a
// group. resource.Catalog is one.
type Resolver interface {
	// Resolve returns the resource and whether it is namespaced; ok is false for a name the cluster
	// does not know.
	Resolve(name string) (gr schema.GroupResource, namespaced, ok bool)
}

// Object is what a decision on one object needs of its metadata.
type Object struct {
	Namespace, Name string
	// Labels may be nil. labels.Set and objmeta.Pairs implement it.
	Labels labels.Labels
	// Deleting is true when a deletionTimestamp is set.
	Deleting bool
}

// Filter answers what the filters of one job select. Immutable.
type Filter struct {
	old           bool
	resources     resourceList // older style
	clusterOption *bool
	cluster       resourceList // newer style
	namespaced    resourceList
	allNamespaces bool
	names         []string
	namespaceSet  map[string]struct{}
	left          map[string]struct{} // nil unless all but these are selected
	selectors     []labels.Selector
}

// NewFilter builds the filter of a validated spec. namespaces is the resolved set of
// ExpandNamespaces, as admission stored it; the namespace lists of the spec are not looked at
// again, so that namespaces created since do not change the set. Resource names are resolved once;
// unknown ones stay literal.
func NewFilter(spec Spec, namespaces []string, resolver Resolver) (*Filter, error) {
	if spec.UsesOldFilters() && spec.UsesNewFilters() {
		return nil, ErrMixedFilterStyles
	}
	selectors, err := spec.Selectors()
	if err != nil {
		return nil, fmt.Errorf("build filter: %w", err)
	}
	f := &Filter{
		old:           spec.UsesOldFilters(),
		clusterOption: spec.IncludeClusterResources,
		resources: newList(newScopedList("includedResources", spec.IncludedResources, resolver, anyScope),
			newScopedList("excludedResources", spec.ExcludedResources, resolver, anyScope), spec.IncludedResources),
		cluster: newList(newScopedList("includedClusterScopedResources", spec.IncludedClusterScopedResources, resolver, clusterScope),
			newScopedList("excludedClusterScopedResources", spec.ExcludedClusterScopedResources, resolver, clusterScope), spec.IncludedClusterScopedResources),
		namespaced: newList(newScopedList("includedNamespaceScopedResources", spec.IncludedNamespaceScopedResources, resolver, namespaceScope),
			newScopedList("excludedNamespaceScopedResources", spec.ExcludedNamespaceScopedResources, resolver, namespaceScope), spec.IncludedNamespaceScopedResources),
		allNamespaces: len(namespaces) == 1 && namespaces[0] == All,
		namespaceSet:  make(map[string]struct{}, len(namespaces)),
		selectors:     selectors,
	}
	if names, ok := parseExclusions(namespaces); ok {
		f.left = names
		return f, nil
	}
	if !f.allNamespaces {
		f.names = slices.Sorted(slices.Values(namespaces))
		for _, name := range namespaces {
			f.namespaceSet[name] = struct{}{}
		}
	}
	return f, nil
}

// parseExclusions reads a set as the ledger stores it: names with a "!" before them, then All.
func parseExclusions(namespaces []string) (map[string]struct{}, bool) {
	last := len(namespaces) - 1
	if last < 1 || namespaces[last] != All {
		return nil, false
	}
	left := make(map[string]struct{}, last)
	for _, entry := range namespaces[:last] {
		left[strings.TrimPrefix(entry, "!")] = struct{}{}
	}
	return left, true
}

// AllNamespaces reports whether no namespace is left out.
func (f *Filter) AllNamespaces() bool { return f.allNamespaces }

// AllButSome reports whether every namespace is selected except some, which were excluded by label
// when the job was admitted.
func (f *Filter) AllButSome() bool { return f.left != nil }

// Namespaces returns the selected names, sorted; nil when AllNamespaces or AllButSome. The caller
// must not change it.
func (f *Filter) Namespaces() []string { return f.names }

// Namespace reports whether the namespace of that name is selected.
func (f *Filter) Namespace(name string) bool {
	if f.allNamespaces {
		return true
	}
	if f.left != nil {
		_, left := f.left[name]
		return !left
	}
	_, ok := f.namespaceSet[name]
	return ok
}

// Selectors returns the label selectors, any of which selects an object; none means that labels do
// not matter.
func (f *Filter) Selectors() []labels.Selector { return f.selectors }

// isExcluded reports whether the object's own label keeps it out.
func (o *Object) isExcluded() bool { return o.Labels != nil && o.Labels.Get(LabelExclude) == "true" }

// MatchesLabels reports whether an object with these labels passes the selectors.
func (f *Filter) MatchesLabels(set labels.Labels) bool {
	if len(f.selectors) == 0 {
		return true
	}
	if set == nil {
		set = labels.Set(nil)
	}
	for _, s := range f.selectors {
		if s.Matches(set) {
			return true
		}
	}
	return false
}

// Resource reports whether objects of the resource are collected (Velero's resource filter
// decision).
func (f *Filter) Resource(gr schema.GroupResource, namespaced bool) bool {
	if f.old {
		return f.oldResource(gr, namespaced)
	}
	return f.newResource(gr, namespaced)
}

func (f *Filter) oldResource(gr schema.GroupResource, namespaced bool) bool {
	if !namespaced {
		if f.clusterOption != nil && !*f.clusterOption {
			return false
		}
		// Namespaces belong to what they hold, so they are not subject to this.
		if f.clusterOption == nil && !f.allNamespaces && gr != namespacesResource {
			return false
		}
	}
	return f.resources.includesResource(gr)
}

func (f *Filter) newResource(gr schema.GroupResource, namespaced bool) bool {
	if namespaced {
		return f.namespaced.includesResource(gr)
	}
	if f.cluster.out.Has(gr) {
		return false
	}
	if gr == namespacesResource || f.cluster.in.Has(gr) {
		return true
	}
	return f.cluster.isEmpty() && f.allNamespaces && f.namespaced.selectsEverything()
}

// IsOfNamespaces reports that cluster-scoped objects are left out, but for those that selected objects need,
// because not all namespaces are selected and nothing is said about them.
func (f *Filter) IsOfNamespaces() bool {
	return !f.allNamespaces && f.clusterOption == nil && !f.resources.given && !f.cluster.given
}

// ExcludesResource reports whether the filters rule the resource out by name or, for cluster-scoped
// resources, by includeClusterResources: false, or by a list of included resources without it while
// includeClusterResources is unset (Velero 1.18). A resource can be neither selected nor excluded;
// objects of such a resource are taken only when something collected needs them.
func (f *Filter) ExcludesResource(gr schema.GroupResource, namespaced bool) bool {
	switch {
	case !f.old && namespaced:
		return f.namespaced.out.Has(gr)
	case !f.old:
		return f.cluster.out.Has(gr)
	case namespaced || f.clusterOption != nil && *f.clusterOption:
		return f.resources.out.Has(gr)
	}
	return f.clusterOption != nil || !f.resources.includesResource(gr)
}

// MayTakeFrom reports whether objects of a group version could be collected that the cluster
// announces without its resources.
func (f *Filter) MayTakeFrom(gv schema.GroupVersion) bool {
	if f.old {
		return f.resources.mayInclude(gv)
	}
	everything := f.cluster.isEmpty() && f.allNamespaces && f.namespaced.selectsEverything()
	return everything || f.namespaced.mayInclude(gv) || f.cluster.mayName(gv)
}

// DefinitionsOnDemand reports whether the definition of a collected custom resource has to be added
// by hand: definitions are neither selected nor excluded by the filters.
func (f *Filter) DefinitionsOnDemand() bool {
	return !f.Resource(crdResource, false) && !f.ExcludesResource(crdResource, false)
}

// Item reports whether one listed object is taken. Its resource is known to pass Resource; labels
// are not compared with the selectors, which the server applied (see MatchesLabels).
func (f *Filter) Item(o Object) bool {
	if o.Deleting || o.isExcluded() {
		return false
	}
	return o.Namespace == "" || f.Namespace(o.Namespace)
}

// SelectsNamespace reports whether the Namespace object itself is selected: its resource, its name and its labels
// are.
func (f *Filter) SelectsNamespace(name string, set labels.Labels) bool {
	return f.Resource(namespacesResource, false) && f.Namespace(name) && f.MatchesLabels(set)
}

// NamespaceObject reports whether the Namespace object itself is taken: an active namespace that is selected, or
// that holds a collected object.
func (f *Filter) NamespaceObject(o Object, active, holdsItems bool) bool {
	if !active || o.Deleting || o.isExcluded() {
		return false
	}
	return holdsItems || f.SelectsNamespace(o.Name, o.Labels)
}
