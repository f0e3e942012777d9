package selection

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Spec holds the filter fields that backups and restores share, under the names they have in the
// velero.io/v1 specs. A nil list means that nothing was given.
type Spec struct {
	IncludedNamespaces []string
	ExcludedNamespaces []string

	// The older filter style; restores know only this one.
	IncludedResources       []string
	ExcludedResources       []string
	IncludeClusterResources *bool

	// The newer filter style, backups only. Not mixable with the older one.
	IncludedClusterScopedResources   []string
	ExcludedClusterScopedResources   []string
	IncludedNamespaceScopedResources []string
	ExcludedNamespaceScopedResources []string

	// At most one of the two may be set.
	LabelSelector    *metav1.LabelSelector
	OrLabelSelectors []*metav1.LabelSelector
}

// UsesOldFilters reports whether any field of the older style is set.
func (s *Spec) UsesOldFilters() bool {
	return len(s.IncludedResources) > 0 || len(s.ExcludedResources) > 0 || s.IncludeClusterResources != nil
}

// UsesNewFilters reports whether any field of the newer style is set.
func (s *Spec) UsesNewFilters() bool {
	return len(s.IncludedClusterScopedResources) > 0 || len(s.ExcludedClusterScopedResources) > 0 ||
		len(s.IncludedNamespaceScopedResources) > 0 || len(s.ExcludedNamespaceScopedResources) > 0
}
