package validate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

var namespaceListKind = corev1.SchemeGroupVersion.WithKind("NamespaceList")

// statusVersion is the legacy status.version every Velero writes.
const statusVersion = 1

// fillDefaults fills what the spec leaves out and the computed status.
func (v *Validator) fillDefaults(b *velerov1.Backup) {
	spec := &b.Spec
	orDefault(&spec.TTL, v.Defaults.TTL)
	orDefault(&spec.CSISnapshotTimeout, v.Defaults.CSISnapshotTimeout)
	orDefault(&spec.ItemOperationTimeout, v.Defaults.ItemOperationTimeout)
	if spec.VolumeGroupSnapshotLabelKey == "" {
		spec.VolumeGroupSnapshotLabelKey = velerov1.LabelVolumeGroup
	}
	if ptr.Deref(spec.DefaultVolumesToRestic, false) {
		spec.DefaultVolumesToFsBackup = spec.DefaultVolumesToRestic
	}
	if spec.DefaultVolumesToFsBackup == nil {
		spec.DefaultVolumesToFsBackup = ptr.To(v.Defaults.VolumesToFsBackup)
	}
	if spec.SnapshotMoveData == nil {
		spec.SnapshotMoveData = ptr.To(v.Defaults.SnapshotMoveData)
	}
	b.Status.Version = statusVersion
	b.Status.FormatVersion = manifest.FormatVersion
	b.Status.Expiration = ExpirationAt(v.Clock.Now(), spec.TTL.Duration)
}

// ExpirationAt is when a backup expires that has this TTL from now on.
func ExpirationAt(now time.Time, ttl time.Duration) *metav1.Time {
	return &metav1.Time{Time: now.Add(ttl).Truncate(time.Second)}
}

func orDefault(d *metav1.Duration, value time.Duration) {
	if d.Duration == 0 {
		d.Duration = value
	}
}

// excludeSnapshots keeps snapshot objects out, in the lists of the style in use; without any filter
// that is the newer one.
func excludeSnapshots(spec *velerov1.BackupSpec) {
	filters := backupFilters(spec)
	if filters.UsesOldFilters() {
		both := []string{selection.VolumeSnapshots, selection.VolumeSnapshotContents}
		spec.ExcludedResources = excludeNames(spec.ExcludedResources, both...)
		rest := slices.DeleteFunc(slices.Clone(spec.IncludedResources), func(r string) bool { return slices.Contains(both, r) })
		if len(rest) > 0 { // an empty list would mean everything
			spec.IncludedResources = rest
		}
		return
	}
	spec.ExcludedClusterScopedResources = excludeNames(spec.ExcludedClusterScopedResources, selection.VolumeSnapshotContents)
	spec.ExcludedNamespaceScopedResources = excludeNames(spec.ExcludedNamespaceScopedResources, selection.VolumeSnapshots)
}

// excludeNames appends what is missing, unless everything is excluded already.
func excludeNames(list []string, names ...string) []string {
	if slices.Contains(list, selection.All) {
		return list
	}
	return append(slices.Clip(list), missingNames(list, names)...)
}

// missingNames returns the names that are not in the list.
func missingNames(list, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(list, n) })
}
