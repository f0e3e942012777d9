package selection

import velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"

// FromBackup returns the filter fields of a Backup's spec.
func FromBackup(b *velerov1.BackupSpec) Spec {
	return Spec{
		IncludedNamespaces: b.IncludedNamespaces, ExcludedNamespaces: b.ExcludedNamespaces,
		IncludedResources: b.IncludedResources, ExcludedResources: b.ExcludedResources,
		IncludeClusterResources:          b.IncludeClusterResources,
		IncludedClusterScopedResources:   b.IncludedClusterScopedResources,
		ExcludedClusterScopedResources:   b.ExcludedClusterScopedResources,
		IncludedNamespaceScopedResources: b.IncludedNamespaceScopedResources,
		ExcludedNamespaceScopedResources: b.ExcludedNamespaceScopedResources,
		LabelSelector:                    b.LabelSelector, OrLabelSelectors: b.OrLabelSelectors,
	}
}
