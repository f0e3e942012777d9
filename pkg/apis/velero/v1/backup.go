package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Backup is a request to store a selection of the cluster's objects, and the record of what became
// of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=backups,scope=Namespaced
// +kubebuilder:storageversion
type Backup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec BackupSpec `json:"spec,omitempty"`
	// +optional
	Status BackupStatus `json:"status,omitempty"`
}

// BackupList is a list of Backups.
//
// +kubebuilder:object:root=true
type BackupList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Backup `json:"items"`
}

// Metadata is what a Schedule's template sets in its Backups' own metadata.
type Metadata struct {
	// Labels of the Backups produced from the template.
	// +optional
	// +nullable
	Labels map[string]string `json:"labels,omitempty"`
}

// BackupSpec defines what to back up, where to and how. It is also the template of a Schedule. All
// fields are optional.
type BackupSpec struct {
	// Metadata is used in a Schedule's template only.
	// +optional
	Metadata Metadata `json:"metadata,omitempty"`
	// IncludedNamespaces names namespaces or patterns of them; empty means all.
	// +optional
	// +nullable
	IncludedNamespaces []string `json:"includedNamespaces,omitempty"`
	// ExcludedNamespaces is subtracted from IncludedNamespaces.
	// +optional
	// +nullable
	ExcludedNamespaces []string `json:"excludedNamespaces,omitempty"`
	// IncludedResources and the two fields after it are the older filters; they cannot be combined
	// with the four scoped ones below.
	// +optional
	// +nullable
	IncludedResources []string `json:"includedResources,omitempty"`
	// +optional
	// +nullable
	ExcludedResources []string `json:"excludedResources,omitempty"`
	// IncludedClusterScopedResources names cluster-scoped resources to store; "*" is all of them.
	// +optional
	// +nullable
	IncludedClusterScopedResources []string `json:"includedClusterScopedResources,omitempty"`
	// +optional
	// +nullable
	ExcludedClusterScopedResources []string `json:"excludedClusterScopedResources,omitempty"`
	// IncludedNamespaceScopedResources names namespaced resources to store; empty and "*" mean all
	// of them.
	// +optional
	// +nullable
	IncludedNamespaceScopedResources []string `json:"includedNamespaceScopedResources,omitempty"`
	// +optional
	// +nullable
	ExcludedNamespaceScopedResources []string `json:"excludedNamespaceScopedResources,omitempty"`
	// LabelSelector keeps only objects that match; it excludes OrLabelSelectors.
	// +optional
	// +nullable
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// OrLabelSelectors keeps objects that match any of them.
	// +optional
	// +nullable
	OrLabelSelectors []*metav1.LabelSelector `json:"orLabelSelectors,omitempty"`
	// SnapshotVolumes requests volume snapshots; unset takes what is possible.
	// +optional
	// +nullable
	SnapshotVolumes *bool `json:"snapshotVolumes,omitempty"`
	// TTL is how long the backup is kept; zero is the server's default (720h).
	// +optional
	TTL metav1.Duration `json:"ttl,omitempty"`
	// IncludeClusterResources decides about cluster-scoped objects; unset takes those that the
	// chosen namespaces' objects need.
	// +optional
	// +nullable
	IncludeClusterResources *bool `json:"includeClusterResources,omitempty"`
	// Hooks are commands run in Pods around their backup.
	// +optional
	Hooks BackupHooks `json:"hooks,omitempty"`
	// StorageLocation names a BackupStorageLocation; empty is the default one.
	// +optional
	StorageLocation string `json:"storageLocation,omitempty"`
	// VolumeSnapshotLocations names at most one location per provider.
	// +optional
	VolumeSnapshotLocations []string `json:"volumeSnapshotLocations,omitempty"`
	// DefaultVolumesToRestic is the deprecated name of DefaultVolumesToFsBackup.
	// +optional
	// +nullable
	DefaultVolumesToRestic *bool `json:"defaultVolumesToRestic,omitempty"`
	// DefaultVolumesToFsBackup takes Pod volumes through the file system.
	// +optional
	// +nullable
	DefaultVolumesToFsBackup *bool `json:"defaultVolumesToFsBackup,omitempty"`
	// OrderedResources maps a plural resource name to a comma-separated list of "namespace/name"
	// stored first, in that order.
	// +optional
	// +nullable
	OrderedResources map[string]string `json:"orderedResources,omitempty"`
	// CSISnapshotTimeout bounds the wait for a CSI snapshot; zero is 10m.
	// +optional
	CSISnapshotTimeout metav1.Duration `json:"csiSnapshotTimeout,omitempty"`
	// ItemOperationTimeout bounds asynchronous operations; zero is 4h.
	// +optional
	ItemOperationTimeout metav1.Duration `json:"itemOperationTimeout,omitempty"`
	// ResourcePolicy names a ConfigMap with volume policies.
	// +optional
	ResourcePolicy *corev1.TypedLocalObjectReference `json:"resourcePolicy,omitempty"`
	// SnapshotMoveData moves snapshot data to the storage location.
	// +optional
	// +nullable
	SnapshotMoveData *bool `json:"snapshotMoveData,omitempty"`
	// DataMover names the data mover; empty and "velero" are the built-in one.
	// +optional
	DataMover string `json:"datamover,omitempty"`
	// UploaderConfig tunes the upload of volume data.
	// +optional
	// +nullable
	UploaderConfig *UploaderConfigForBackup `json:"uploaderConfig,omitempty"`
	// VolumeGroupSnapshotLabelKey is the label that groups PVCs; empty is LabelVolumeGroup.
	// +optional
	VolumeGroupSnapshotLabelKey string `json:"volumeGroupSnapshotLabelKey,omitempty"`
}

// UploaderConfigForBackup tunes the upload of volume data.
type UploaderConfigForBackup struct {
	// ParallelFilesUpload is how many files are read at a time.
	// +optional
	ParallelFilesUpload int `json:"parallelFilesUpload,omitempty"`
}

// BackupStatus is what became of a Backup.
type BackupStatus struct {
	// Version is always 1; FormatVersion replaced it.
	// +optional
	Version int `json:"version,omitempty"`
	// FormatVersion is the version of the tarball's format, major.minor.patch.
	// +optional
	FormatVersion string `json:"formatVersion,omitempty"`
	// Expiration is when the backup may be removed.
	// +optional
	// +nullable
	Expiration *metav1.Time `json:"expiration,omitempty"`
	// Phase is empty until the server has seen the Backup; empty means New.
	// +optional
	Phase BackupPhase `json:"phase,omitempty"`
	// QueuePosition counts from 1 while Queued and is zero otherwise.
	// +optional
	QueuePosition int `json:"queuePosition,omitempty"`
	// ValidationErrors are the reasons why the phase is FailedValidation.
	// +optional
	// +nullable
	ValidationErrors []string `json:"validationErrors,omitempty"`
	// StartTimestamp is when a runner took the backup.
	// +optional
	// +nullable
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// CompletionTimestamp is when the terminal phase was decided.
	// +optional
	// +nullable
	CompletionTimestamp *metav1.Time `json:"completionTimestamp,omitempty"`
	// VolumeSnapshotsAttempted and the next field count native snapshots.
	// +optional
	VolumeSnapshotsAttempted int `json:"volumeSnapshotsAttempted,omitempty"`
	// +optional
	VolumeSnapshotsCompleted int `json:"volumeSnapshotsCompleted,omitempty"`
	// FailureReason is the reason why the phase is Failed.
	// +optional
	FailureReason string `json:"failureReason,omitempty"`
	// Warnings and Errors count log lines of that level; the texts are in the results file.
	// +optional
	Warnings int `json:"warnings,omitempty"`
	// +optional
	Errors int `json:"errors,omitempty"`
	// Progress is updated while the backup runs.
	// +optional
	// +nullable
	Progress *BackupProgress `json:"progress,omitempty"`
	// +optional
	CSIVolumeSnapshotsAttempted int `json:"csiVolumeSnapshotsAttempted,omitempty"`
	// +optional
	CSIVolumeSnapshotsCompleted int `json:"csiVolumeSnapshotsCompleted,omitempty"`
	// +optional
	BackupItemOperationsAttempted int `json:"backupItemOperationsAttempted,omitempty"`
	// +optional
	BackupItemOperationsCompleted int `json:"backupItemOperationsCompleted,omitempty"`
	// +optional
	BackupItemOperationsFailed int `json:"backupItemOperationsFailed,omitempty"`
	// HookStatus counts the hooks that ran.
	// +optional
	// +nullable
	HookStatus *HookStatus `json:"hookStatus,omitempty"`
}

// BackupProgress counts items while a backup runs.
type BackupProgress struct {
	// TotalItems may grow while the backup runs.
	// +optional
	TotalItems int `json:"totalItems,omitempty"`
	// ItemsBackedUp never exceeds TotalItems.
	// +optional
	ItemsBackedUp int `json:"itemsBackedUp,omitempty"`
}

// HookStatus counts the hooks of a backup or restore.
type HookStatus struct {
	// +optional
	HooksAttempted int `json:"hooksAttempted,omitempty"`
	// +optional
	HooksFailed int `json:"hooksFailed,omitempty"`
}
