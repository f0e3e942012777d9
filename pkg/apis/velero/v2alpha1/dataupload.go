package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// DataUpload asks a data mover to copy a volume snapshot to a storage location.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=datauploads,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.phase",description="DataUpload status such as New/InProgress"
// +kubebuilder:printcolumn:name="Started",type="date",JSONPath=".status.startTimestamp",description="Time duration since this DataUpload was started"
// +kubebuilder:printcolumn:name="Bytes Done",type="integer",format="int64",JSONPath=".status.progress.bytesDone",description="Completed bytes"
// +kubebuilder:printcolumn:name="Total Bytes",type="integer",format="int64",JSONPath=".status.progress.totalBytes",description="Total bytes"
// +kubebuilder:printcolumn:name="Incremental Bytes",type="integer",format="int64",JSONPath=".status.incrementalBytes",description="Incremental bytes",priority=10
// +kubebuilder:printcolumn:name="Storage Location",type="string",JSONPath=".spec.backupStorageLocation",description="Name of the Backup Storage Location where this backup should be stored"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time duration since this DataUpload was created"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.node",description="Name of the node where the DataUpload is processed"
type DataUpload struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec DataUploadSpec `json:"spec,omitempty"`
	// +optional
	Status DataUploadStatus `json:"status,omitempty"`
}

// DataUploadList is a list of DataUploads.
//
// +kubebuilder:object:root=true
type DataUploadList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DataUpload `json:"items"`
}

// SnapshotType defines what kind of snapshot is moved.
type SnapshotType string

// DataUploadSpec defines which snapshot to move and where to.
type DataUploadSpec struct {
	SnapshotType SnapshotType `json:"snapshotType"`
	// CSISnapshot is set for snapshots of type CSI.
	// +optional
	// +nullable
	CSISnapshot *CSISnapshotSpec `json:"csiSnapshot,omitempty"`
	// SourcePVC is the claim the snapshot was made of.
	SourcePVC string `json:"sourcePVC"`
	// DataMover names the data mover; empty and "velero" are the built-in one.
	// +optional
	DataMover string `json:"datamover,omitempty"`
	// BackupStorageLocation is where the data goes.
	BackupStorageLocation string `json:"backupStorageLocation"`
	// SourceNamespace is the claim's namespace.
	SourceNamespace string `json:"sourceNamespace"`
	// +optional
	// +nullable
	DataMoverConfig map[string]string `json:"dataMoverConfig,omitempty"`
	// Cancel asks for the work to stop.
	// +optional
	Cancel bool `json:"cancel,omitempty"`
	// OperationTimeout bounds each step the data mover waits for.
	OperationTimeout metav1.Duration `json:"operationTimeout"`
}

// CSISnapshotSpec names a CSI snapshot.
type CSISnapshotSpec struct {
	VolumeSnapshot string `json:"volumeSnapshot"`
	StorageClass   string `json:"storageClass"`
	// +optional
	SnapshotClass string `json:"snapshotClass,omitempty"`
	// +optional
	Driver string `json:"driver,omitempty"`
}

// DataMovePhase is where the movement of a volume's data stands. Upload and download share the same
// phases; empty means New.
//
// +kubebuilder:validation:Enum=New;Accepted;Prepared;InProgress;Canceling;Canceled;Completed;Failed
type DataMovePhase string

// NodeOS is the operating system of the node the work needs.
//
// +kubebuilder:validation:Enum=auto;linux;windows
type NodeOS string

// DataUploadStatus is what became of a DataUpload.
type DataUploadStatus struct {
	// +optional
	Phase DataMovePhase `json:"phase,omitempty"`
	// Path of the volume on the node.
	// +optional
	Path string `json:"path,omitempty"`
	// SnapshotID in the repository.
	// +optional
	SnapshotID string `json:"snapshotID,omitempty"`
	// DataMoverResult is the data mover's own record.
	// +optional
	// +nullable
	DataMoverResult map[string]string `json:"dataMoverResult,omitempty"`
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
	Progress velerov1.DataMoveOperationProgress `json:"progress,omitempty"`
	// IncrementalBytes is how much was new to the repository.
	// +optional
	IncrementalBytes int64 `json:"incrementalBytes,omitempty"`
	// Node that does the work.
	// +optional
	Node string `json:"node,omitempty"`
	// +optional
	NodeOS NodeOS `json:"nodeOS,omitempty"`
	// AcceptedByNode is the node that accepted the work.
	// +optional
	AcceptedByNode string `json:"acceptedByNode,omitempty"`
	// +optional
	// +nullable
	AcceptedTimestamp *metav1.Time `json:"acceptedTimestamp,omitempty"`
}

// DataUploadResult is JSON in a ConfigMap: the bridge between the DataUpload in a backup and the
// claim being restored.
//
// +kubebuilder:object:generate=true
type DataUploadResult struct {
	BackupStorageLocation string            `json:"backupStorageLocation"`
	DataMover             string            `json:"datamover,omitempty"`
	SnapshotID            string            `json:"snapshotID,omitempty"`
	SourceNamespace       string            `json:"sourceNamespace"`
	DataMoverResult       map[string]string `json:"dataMoverResult,omitempty"`
	NodeOS                NodeOS            `json:"nodeOS,omitempty"`
	SnapshotSize          int64             `json:"snapshotSize,omitempty"`
}
