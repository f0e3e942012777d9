package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeleteBackupRequest asks for a backup and everything it owns to be deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=deletebackuprequests,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="BackupName",type="string",JSONPath=".spec.backupName",description="The name of the backup to be deleted"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.phase",description="The status of the deletion request"
type DeleteBackupRequest struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec DeleteBackupRequestSpec `json:"spec,omitempty"`
	// +optional
	Status DeleteBackupRequestStatus `json:"status,omitempty"`
}

// DeleteBackupRequestList is a list of DeleteBackupRequests.
//
// +kubebuilder:object:root=true
type DeleteBackupRequestList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DeleteBackupRequest `json:"items"`
}

// DeleteBackupRequestSpec names the backup to delete.
type DeleteBackupRequestSpec struct {
	BackupName string `json:"backupName"`
}

// DeleteBackupRequestPhase is where a request stands; empty means New.
//
// +kubebuilder:validation:Enum=New;InProgress;Processed
type DeleteBackupRequestPhase string

// The phases of a DeleteBackupRequest (Velero 1.18).
const (
	DeleteBackupRequestPhaseNew        DeleteBackupRequestPhase = "New"
	DeleteBackupRequestPhaseInProgress DeleteBackupRequestPhase = "InProgress"
	DeleteBackupRequestPhaseProcessed  DeleteBackupRequestPhase = "Processed"
)

// DeleteBackupRequestStatus is what became of a request.
type DeleteBackupRequestStatus struct {
	// +optional
	Phase DeleteBackupRequestPhase `json:"phase,omitempty"`
	// Errors name what could not be deleted; the backup stays then.
	// +optional
	// +nullable
	Errors []string `json:"errors,omitempty"`
}

// DownloadRequest asks for a URL of a file of a backup or restore.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=downloadrequests,scope=Namespaced
// +kubebuilder:storageversion
type DownloadRequest struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec DownloadRequestSpec `json:"spec,omitempty"`
	// +optional
	Status DownloadRequestStatus `json:"status,omitempty"`
}

// DownloadRequestList is a list of DownloadRequests.
//
// +kubebuilder:object:root=true
type DownloadRequestList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DownloadRequest `json:"items"`
}

// DownloadRequestSpec names the file.
type DownloadRequestSpec struct {
	Target DownloadTarget `json:"target"`
}

// DownloadTarget is one file of one backup or restore.
type DownloadTarget struct {
	Kind DownloadTargetKind `json:"kind"`
	// Name of the backup or restore.
	Name string `json:"name"`
}

// DownloadTargetKind defines which file is wanted.
//
// +kubebuilder:validation:Enum=BackupLog;BackupContents;BackupVolumeSnapshots;BackupItemOperations;BackupResourceList;BackupResults;RestoreLog;RestoreResults;RestoreResourceList;RestoreItemOperations;CSIBackupVolumeSnapshots;CSIBackupVolumeSnapshotContents;BackupVolumeInfos;RestoreVolumeInfo
type DownloadTargetKind string

// The files that can be asked for (Velero 1.18).
const (
	DownloadTargetKindBackupLog                       DownloadTargetKind = "BackupLog"
	DownloadTargetKindBackupContents                  DownloadTargetKind = "BackupContents"
	DownloadTargetKindBackupVolumeSnapshots           DownloadTargetKind = "BackupVolumeSnapshots"
	DownloadTargetKindBackupItemOperations            DownloadTargetKind = "BackupItemOperations"
	DownloadTargetKindBackupResourceList              DownloadTargetKind = "BackupResourceList"
	DownloadTargetKindBackupResults                   DownloadTargetKind = "BackupResults"
	DownloadTargetKindRestoreLog                      DownloadTargetKind = "RestoreLog"
	DownloadTargetKindRestoreResults                  DownloadTargetKind = "RestoreResults"
	DownloadTargetKindRestoreResourceList             DownloadTargetKind = "RestoreResourceList"
	DownloadTargetKindRestoreItemOperations           DownloadTargetKind = "RestoreItemOperations"
	DownloadTargetKindCSIBackupVolumeSnapshots        DownloadTargetKind = "CSIBackupVolumeSnapshots"
	DownloadTargetKindCSIBackupVolumeSnapshotContents DownloadTargetKind = "CSIBackupVolumeSnapshotContents"
	DownloadTargetKindBackupVolumeInfos               DownloadTargetKind = "BackupVolumeInfos"
	DownloadTargetKindRestoreVolumeInfo               DownloadTargetKind = "RestoreVolumeInfo"
)

// DownloadRequestPhase is where a request stands; empty means New.
//
// +kubebuilder:validation:Enum=New;Processed
type DownloadRequestPhase string

// The phases of a DownloadRequest (Velero 1.18).
const (
	DownloadRequestPhaseProcessed DownloadRequestPhase = "Processed"
)

// DownloadRequestStatus is the answer to a request.
type DownloadRequestStatus struct {
	// +optional
	Phase DownloadRequestPhase `json:"phase,omitempty"`
	// DownloadURL can be fetched without credentials until Expiration.
	// +optional
	DownloadURL string `json:"downloadURL,omitempty"`
	// Expiration of the URL; the request is deleted after it.
	// +optional
	// +nullable
	Expiration *metav1.Time `json:"expiration,omitempty"`
}

// ServerStatusRequest asks the server for its version and plugins.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=serverstatusrequests,scope=Namespaced,shortName=ssr
// +kubebuilder:storageversion
type ServerStatusRequest struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec ServerStatusRequestSpec `json:"spec,omitempty"`
	// +optional
	Status ServerStatusRequestStatus `json:"status,omitempty"`
}

// ServerStatusRequestList is a list of ServerStatusRequests.
//
// +kubebuilder:object:root=true
type ServerStatusRequestList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServerStatusRequest `json:"items"`
}

// ServerStatusRequestSpec is empty.
type ServerStatusRequestSpec struct{}

// ServerStatusRequestPhase is where a request stands; empty means New.
//
// +kubebuilder:validation:Enum=New;Processed
type ServerStatusRequestPhase string

// The phases of a ServerStatusRequest (Velero 1.18).
const (
	ServerStatusRequestPhaseProcessed ServerStatusRequestPhase = "Processed"
)

// ServerStatusRequestStatus is the answer to a request.
type ServerStatusRequestStatus struct {
	// +optional
	Phase ServerStatusRequestPhase `json:"phase,omitempty"`
	// ProcessedTimestamp is when the request was answered; it is deleted about a minute later.
	// +optional
	// +nullable
	ProcessedTimestamp *metav1.Time `json:"processedTimestamp,omitempty"`
	// ServerVersion is what clients compare their own version with.
	// +optional
	ServerVersion string `json:"serverVersion,omitempty"`
	// Plugins are all registered ones, built-in ones too.
	// +optional
	// +nullable
	Plugins []PluginInfo `json:"plugins,omitempty"`
}

// PluginInfo names one plugin.
type PluginInfo struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}
