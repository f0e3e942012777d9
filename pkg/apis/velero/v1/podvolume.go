package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodVolumeBackup is the backup of one volume of one Pod.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=podvolumebackups,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.phase",description="PodVolumeBackup status such as New/InProgress"
// +kubebuilder:printcolumn:name="Started",type="date",JSONPath=".status.startTimestamp",description="Time duration since this PodVolumeBackup was started"
// +kubebuilder:printcolumn:name="Bytes Done",type="integer",format="int64",JSONPath=".status.progress.bytesDone",description="Completed bytes"
// +kubebuilder:printcolumn:name="Total Bytes",type="integer",format="int64",JSONPath=".status.progress.totalBytes",description="Total bytes"
// +kubebuilder:printcolumn:name="Incremental Bytes",type="integer",format="int64",JSONPath=".status.incrementalBytes",description="Incremental bytes",priority=10
// +kubebuilder:printcolumn:name="Storage Location",type="string",JSONPath=".spec.backupStorageLocation",description="Name of the Backup Storage Location where this backup should be stored"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time duration since this PodVolumeBackup was created"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.node",description="Name of the node where the PodVolumeBackup is processed"
// +kubebuilder:printcolumn:name="Uploader",type="string",JSONPath=".spec.uploaderType",description="The type of the uploader to handle data transfer"
type PodVolumeBackup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec PodVolumeBackupSpec `json:"spec,omitempty"`
	// +optional
	Status PodVolumeBackupStatus `json:"status,omitempty"`
}

// PodVolumeBackupList is a list of PodVolumeBackups.
//
// +kubebuilder:object:root=true
type PodVolumeBackupList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodVolumeBackup `json:"items"`
}

// UploaderType names the program that moves volume data.
//
// +kubebuilder:validation:Enum=kopia;restic;""
type UploaderType string

// PodVolumeBackupSpec defines which volume to back up and where to.
type PodVolumeBackupSpec struct {
	// Node the Pod runs on.
	Node string `json:"node"`
	// Pod that uses the volume.
	Pod corev1.ObjectReference `json:"pod"`
	// Volume is the volume's name within the Pod.
	Volume string `json:"volume"`
	// BackupStorageLocation is where the repository lives.
	BackupStorageLocation string `json:"backupStorageLocation"`
	// RepoIdentifier identifies the repository.
	RepoIdentifier string `json:"repoIdentifier"`
	// +optional
	UploaderType UploaderType `json:"uploaderType,omitempty"`
	// Tags of the snapshot in the repository.
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// +optional
	// +nullable
	UploaderSettings map[string]string `json:"uploaderSettings,omitempty"`
	// Cancel asks for the work to stop.
	// +optional
	Cancel bool `json:"cancel,omitempty"`
}

// PodVolumePhase is where the movement of a volume's data stands. The backup and the restore of a
// Pod volume share the same phases; empty means New.
//
// +kubebuilder:validation:Enum=New;Accepted;Prepared;InProgress;Canceling;Canceled;Completed;Failed
type PodVolumePhase string

// The phases of PodVolumeBackup and PodVolumeRestore (Velero 1.18).
const (
	PodVolumePhaseNew        PodVolumePhase = "New"
	PodVolumePhaseAccepted   PodVolumePhase = "Accepted"
	PodVolumePhasePrepared   PodVolumePhase = "Prepared"
	PodVolumePhaseInProgress PodVolumePhase = "InProgress"
	PodVolumePhaseCanceling  PodVolumePhase = "Canceling"
	PodVolumePhaseCanceled   PodVolumePhase = "Canceled"
	PodVolumePhaseCompleted  PodVolumePhase = "Completed"
	PodVolumePhaseFailed     PodVolumePhase = "Failed"
)

// DataMoveOperationProgress counts the bytes of a volume.
type DataMoveOperationProgress struct {
	// +optional
	TotalBytes int64 `json:"totalBytes,omitempty"`
	// +optional
	BytesDone int64 `json:"bytesDone,omitempty"`
}

// PodVolumeBackupStatus is what became of a PodVolumeBackup.
type PodVolumeBackupStatus struct {
	// +optional
	Phase PodVolumePhase `json:"phase,omitempty"`
	// Path of the volume on the node.
	// +optional
	Path string `json:"path,omitempty"`
	// SnapshotID in the repository.
	// +optional
	SnapshotID string `json:"snapshotID,omitempty"`
	// Message is the reason why it failed.
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	// +nullable
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// +optional
	// +nullable
	CompletionTimestamp *metav1.Time `json:"completionTimestamp,omitempty"`
	// +optional
	// +nullable
	AcceptedTimestamp *metav1.Time `json:"acceptedTimestamp,omitempty"`
	// +optional
	Progress DataMoveOperationProgress `json:"progress,omitempty"`
	// IncrementalBytes is how much was new to the repository.
	// +optional
	IncrementalBytes int64 `json:"incrementalBytes,omitempty"`
}

// PodVolumeRestore is the restore of one volume of one Pod.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=podvolumerestores,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.phase",description="PodVolumeRestore status such as New/InProgress"
// +kubebuilder:printcolumn:name="Started",type="date",JSONPath=".status.startTimestamp",description="Time duration since this PodVolumeRestore was started"
// +kubebuilder:printcolumn:name="Bytes Done",type="integer",format="int64",JSONPath=".status.progress.bytesDone",description="Completed bytes"
// +kubebuilder:printcolumn:name="Total Bytes",type="integer",format="int64",JSONPath=".status.progress.totalBytes",description="Total bytes"
// +kubebuilder:printcolumn:name="Storage Location",type="string",JSONPath=".spec.backupStorageLocation",description="Name of the Backup Storage Location where the backup data is stored"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time duration since this PodVolumeRestore was created"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.node",description="Name of the node where the PodVolumeRestore is processed"
// +kubebuilder:printcolumn:name="Uploader Type",type="string",JSONPath=".spec.uploaderType",description="The type of the uploader to handle data transfer"
type PodVolumeRestore struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec PodVolumeRestoreSpec `json:"spec,omitempty"`
	// +optional
	Status PodVolumeRestoreStatus `json:"status,omitempty"`
}

// PodVolumeRestoreList is a list of PodVolumeRestores.
//
// +kubebuilder:object:root=true
type PodVolumeRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodVolumeRestore `json:"items"`
}

// PodVolumeRestoreSpec defines which volume to restore and from what.
type PodVolumeRestoreSpec struct {
	// Pod that uses the volume.
	Pod corev1.ObjectReference `json:"pod"`
	// Volume is the volume's name within the Pod.
	Volume string `json:"volume"`
	// BackupStorageLocation is where the repository lives.
	BackupStorageLocation string `json:"backupStorageLocation"`
	// RepoIdentifier identifies the repository.
	RepoIdentifier string `json:"repoIdentifier"`
	// +optional
	UploaderType UploaderType `json:"uploaderType,omitempty"`
	// SnapshotID in the repository.
	SnapshotID string `json:"snapshotID"`
	// SourceNamespace is the namespace the volume was backed up from.
	SourceNamespace string `json:"sourceNamespace"`
	// +optional
	// +nullable
	UploaderSettings map[string]string `json:"uploaderSettings,omitempty"`
	// Cancel asks for the work to stop.
	// +optional
	Cancel bool `json:"cancel,omitempty"`
	// SnapshotSize in bytes.
	// +optional
	SnapshotSize int64 `json:"snapshotSize,omitempty"`
}

// PodVolumeRestoreStatus is what became of a PodVolumeRestore.
type PodVolumeRestoreStatus struct {
	// +optional
	Phase PodVolumePhase `json:"phase,omitempty"`
	// Message is the reason why it failed.
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	// +nullable
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// +optional
	// +nullable
	CompletionTimestamp *metav1.Time `json:"completionTimestamp,omitempty"`
	// +optional
	// +nullable
	AcceptedTimestamp *metav1.Time `json:"acceptedTimestamp,omitempty"`
	// +optional
	Progress DataMoveOperationProgress `json:"progress,omitempty"`
	// Node that does the work.
	// +optional
	Node string `json:"node,omitempty"`
}
