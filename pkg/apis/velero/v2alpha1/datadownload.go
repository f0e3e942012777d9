package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// DataDownload asks a data mover to fill a volume from a storage location.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=datadownloads,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.phase",description="DataDownload status such as New/InProgress"
// +kubebuilder:printcolumn:name="Started",type="date",JSONPath=".status.startTimestamp",description="Time duration since this DataDownload was started"
// +kubebuilder:printcolumn:name="Bytes Done",type="integer",format="int64",JSONPath=".status.progress.bytesDone",description="Completed bytes"
// +kubebuilder:printcolumn:name="Total Bytes",type="integer",format="int64",JSONPath=".status.progress.totalBytes",description="Total bytes"
// +kubebuilder:printcolumn:name="Storage Location",type="string",JSONPath=".spec.backupStorageLocation",description="Name of the Backup Storage Location where the backup data is stored"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time duration since this DataDownload was created"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.node",description="Name of the node where the DataDownload is processed"
type DataDownload struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec DataDownloadSpec `json:"spec,omitempty"`
	// +optional
	Status DataDownloadStatus `json:"status,omitempty"`
}

// DataDownloadList is a list of DataDownloads.
//
// +kubebuilder:object:root=true
type DataDownloadList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DataDownload `json:"items"`
}

// DataDownloadSpec defines which volume to fill and from what.
type DataDownloadSpec struct {
	TargetVolume TargetVolumeSpec `json:"targetVolume"`
	// BackupStorageLocation is where the data is.
	BackupStorageLocation string `json:"backupStorageLocation"`
	// DataMover names the data mover; empty and "velero" are the built-in one.
	// +optional
	DataMover string `json:"datamover,omitempty"`
	// SnapshotID in the repository.
	SnapshotID string `json:"snapshotID"`
	// SourceNamespace is the namespace the volume was backed up from.
	SourceNamespace string `json:"sourceNamespace"`
	// +optional
	// +nullable
	DataMoverConfig map[string]string `json:"dataMoverConfig,omitempty"`
	// Cancel asks for the work to stop.
	// +optional
	Cancel bool `json:"cancel,omitempty"`
	// OperationTimeout bounds each step the data mover waits for.
	OperationTimeout metav1.Duration `json:"operationTimeout"`
	// +optional
	NodeOS NodeOS `json:"nodeOS,omitempty"`
	// SnapshotSize in bytes.
	// +optional
	SnapshotSize int64 `json:"snapshotSize,omitempty"`
}

// TargetVolumeSpec names the volume to fill.
type TargetVolumeSpec struct {
	PVC string `json:"pvc"`
	// PV may be empty: the volume is found through the claim.
	PV        string `json:"pv"`
	Namespace string `json:"namespace"`
}

// DataDownloadStatus is what became of a DataDownload.
type DataDownloadStatus struct {
	// +optional
	Phase DataMovePhase `json:"phase,omitempty"`
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
	// Node that does the work.
	// +optional
	Node string `json:"node,omitempty"`
	// AcceptedByNode is the node that accepted the work.
	// +optional
	AcceptedByNode string `json:"acceptedByNode,omitempty"`
	// +optional
	// +nullable
	AcceptedTimestamp *metav1.Time `json:"acceptedTimestamp,omitempty"`
}
