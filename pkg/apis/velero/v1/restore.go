package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Restore is a request to bring objects of a backup back, and the record of what became of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=restores,scope=Namespaced
// +kubebuilder:storageversion
type Restore struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec RestoreSpec `json:"spec,omitempty"`
	// +optional
	Status RestoreStatus `json:"status,omitempty"`
}

// RestoreList is a list of Restores.
//
// +kubebuilder:object:root=true
type RestoreList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Restore `json:"items"`
}

// PolicyType defines what to do with an object that exists already.
type PolicyType string

// The existing-resource policies; empty means none.
const (
	PolicyTypeNone   PolicyType = "none"
	PolicyTypeUpdate PolicyType = "update"
)

// RestoreSpec defines what to restore and how. Exactly one of BackupName and ScheduleName is set by
// the user.
type RestoreSpec struct {
	// BackupName is the backup to restore from.
	// +optional
	BackupName string `json:"backupName,omitempty"`
	// ScheduleName restores from the newest completed backup of a schedule.
	// +optional
	ScheduleName string `json:"scheduleName,omitempty"`
	// IncludedNamespaces are names as in the backup; empty means all.
	// +optional
	// +nullable
	IncludedNamespaces []string `json:"includedNamespaces,omitempty"`
	// +optional
	// +nullable
	ExcludedNamespaces []string `json:"excludedNamespaces,omitempty"`
	// +optional
	// +nullable
	IncludedResources []string `json:"includedResources,omitempty"`
	// +optional
	// +nullable
	ExcludedResources []string `json:"excludedResources,omitempty"`
	// NamespaceMapping maps a namespace of the backup to its target.
	// +optional
	NamespaceMapping map[string]string `json:"namespaceMapping,omitempty"`
	// LabelSelector keeps only objects that match; it excludes OrLabelSelectors.
	// +optional
	// +nullable
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// OrLabelSelectors keeps objects that match any of them.
	// +optional
	// +nullable
	OrLabelSelectors []*metav1.LabelSelector `json:"orLabelSelectors,omitempty"`
	// RestorePVs restores volumes from snapshots; unset means true.
	// +optional
	// +nullable
	RestorePVs *bool `json:"restorePVs,omitempty"`
	// RestoreStatus defines whose status is restored; unset means that of none.
	// +optional
	// +nullable
	RestoreStatus *RestoreStatusSpec `json:"restoreStatus,omitempty"`
	// PreserveNodePorts keeps the node ports of Services.
	// +optional
	// +nullable
	PreserveNodePorts *bool `json:"preserveNodePorts,omitempty"`
	// IncludeClusterResources decides about cluster-scoped objects; unset takes them when all
	// namespaces are included.
	// +optional
	// +nullable
	IncludeClusterResources *bool `json:"includeClusterResources,omitempty"`
	// Hooks are commands run in restored Pods.
	// +optional
	Hooks RestoreHooks `json:"hooks,omitempty"`
	// ExistingResourcePolicy is "", "none" or "update".
	// +optional
	ExistingResourcePolicy PolicyType `json:"existingResourcePolicy,omitempty"`
	// ItemOperationTimeout bounds asynchronous operations; zero is 4h.
	// +optional
	ItemOperationTimeout metav1.Duration `json:"itemOperationTimeout,omitempty"`
	// ResourceModifier names a ConfigMap with patches.
	// +optional
	// +nullable
	ResourceModifier *corev1.TypedLocalObjectReference `json:"resourceModifier,omitempty"`
	// UploaderConfig tunes the download of volume data.
	// +optional
	// +nullable
	UploaderConfig *UploaderConfigForRestore `json:"uploaderConfig,omitempty"`
}

// RestoreStatusSpec names the resources whose status is restored.
type RestoreStatusSpec struct {
	// +optional
	// +nullable
	IncludedResources []string `json:"includedResources,omitempty"`
	// +optional
	// +nullable
	ExcludedResources []string `json:"excludedResources,omitempty"`
}

// UploaderConfigForRestore tunes the download of volume data.
type UploaderConfigForRestore struct {
	// WriteSparseFiles leaves holes in files where the data is zero.
	// +optional
	// +nullable
	WriteSparseFiles *bool `json:"writeSparseFiles,omitempty"`
	// ParallelFilesDownload is how many files are written at a time.
	// +optional
	ParallelFilesDownload int `json:"parallelFilesDownload,omitempty"`
}

// RestoreStatus is what became of a Restore.
type RestoreStatus struct {
	// Phase is empty until the server has seen the Restore; empty means New.
	// +optional
	Phase RestorePhase `json:"phase,omitempty"`
	// ValidationErrors are the reasons why the phase is FailedValidation.
	// +optional
	// +nullable
	ValidationErrors []string `json:"validationErrors,omitempty"`
	// Warnings and Errors count messages; the texts are in the results file.
	// +optional
	Warnings int `json:"warnings,omitempty"`
	// +optional
	Errors int `json:"errors,omitempty"`
	// FailureReason is the reason why the phase is Failed.
	// +optional
	FailureReason string `json:"failureReason,omitempty"`
	// StartTimestamp is when a runner took the restore.
	// +optional
	// +nullable
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// CompletionTimestamp is when the terminal phase was decided.
	// +optional
	// +nullable
	CompletionTimestamp *metav1.Time `json:"completionTimestamp,omitempty"`
	// Progress is updated while the restore runs.
	// +optional
	// +nullable
	Progress *RestoreProgress `json:"progress,omitempty"`
	// +optional
	RestoreItemOperationsAttempted int `json:"restoreItemOperationsAttempted,omitempty"`
	// +optional
	RestoreItemOperationsCompleted int `json:"restoreItemOperationsCompleted,omitempty"`
	// +optional
	RestoreItemOperationsFailed int `json:"restoreItemOperationsFailed,omitempty"`
	// HookStatus counts the hooks that ran.
	// +optional
	// +nullable
	HookStatus *HookStatus `json:"hookStatus,omitempty"`
}

// RestoreProgress counts items while a restore runs.
type RestoreProgress struct {
	// TotalItems may grow while the restore runs.
	// +optional
	TotalItems int `json:"totalItems,omitempty"`
	// ItemsRestored never exceeds TotalItems.
	// +optional
	ItemsRestored int `json:"itemsRestored,omitempty"`
}
