package plan

import "slices"

// high and low are Velero 1.18's default restore priorities; whatever is in neither list comes
// between them, in alphabetical order.
var (
	high = []string{
		"customresourcedefinitions.apiextensions.k8s.io", "namespaces", "storageclasses.storage.k8s.io",
		"volumesnapshotclass.snapshot.storage.k8s.io", "volumesnapshotcontents.snapshot.storage.k8s.io",
		"volumesnapshots.snapshot.storage.k8s.io", "datauploads.velero.io", "persistentvolumes", "persistentvolumeclaims",
		"clusterroles.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io", "serviceaccounts",
		"clusterrolebindings.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "secrets", "configmaps",
		"limitranges", "priorityclasses.scheduling.k8s.io", "pods", "replicasets.apps", "clusterclasses.cluster.x-k8s.io",
		"endpoints", "services",
	}
	low = []string{
		"clusterbootstraps.run.tanzu.vmware.com", "clusters.cluster.x-k8s.io", "clusterresourcesets.addons.cluster.x-k8s.io",
		"apps.kappctrl.k14s.io", "packageinstalls.packaging.carvel.dev",
	}
)

// resourceRank orders group resources, as in tarball paths; equal ranks go by name.
func resourceRank(groupResource string) int {
	if i := slices.Index(high, groupResource); i >= 0 {
		return i
	}
	if i := slices.Index(low, groupResource); i >= 0 {
		return len(high) + 1 + i
	}
	return len(high)
}
