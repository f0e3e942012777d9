package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupRepository is the repository of one namespace's volume data in one location. It is named
// <volumeNamespace>-<location>-<type>.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=backuprepositories,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Repository Type",type="string",JSONPath=".spec.repositoryType"
type BackupRepository struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec BackupRepositorySpec `json:"spec,omitempty"`
	// +optional
	Status BackupRepositoryStatus `json:"status,omitempty"`
}

// BackupRepositoryList is a list of BackupRepositories.
//
// +kubebuilder:object:root=true
type BackupRepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BackupRepository `json:"items"`
}

// BackupRepositorySpec defines which repository it is.
type BackupRepositorySpec struct {
	// VolumeNamespace is the namespace whose volumes are kept in it.
	VolumeNamespace string `json:"volumeNamespace"`
	// BackupStorageLocation is where it lives.
	BackupStorageLocation string `json:"backupStorageLocation"`
	// +optional
	RepositoryType UploaderType `json:"repositoryType,omitempty"`
	// ResticIdentifier identifies a restic repository.
	// +optional
	ResticIdentifier string `json:"resticIdentifier,omitempty"`
	// MaintenanceFrequency is how often maintenance is due.
	MaintenanceFrequency metav1.Duration `json:"maintenanceFrequency"`
	// +optional
	// +nullable
	RepositoryConfig map[string]string `json:"repositoryConfig,omitempty"`
}

// BackupRepositoryPhase is where a repository stands; empty means New.
//
// +kubebuilder:validation:Enum=New;Ready;NotReady
type BackupRepositoryPhase string

// The phases of a BackupRepository (Velero 1.18).
const (
	BackupRepositoryPhaseReady    BackupRepositoryPhase = "Ready"
	BackupRepositoryPhaseNotReady BackupRepositoryPhase = "NotReady"
)

// BackupRepositoryMaintenanceResult is how a maintenance ended.
//
// +kubebuilder:validation:Enum=Succeeded;Failed
type BackupRepositoryMaintenanceResult string

// BackupRepositoryStatus is the state of a repository.
type BackupRepositoryStatus struct {
	// +optional
	Phase BackupRepositoryPhase `json:"phase,omitempty"`
	// Message is the reason why it is not ready.
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	// +nullable
	LastMaintenanceTime *metav1.Time `json:"lastMaintenanceTime,omitempty"`
	// RecentMaintenance holds the last three runs.
	// +optional
	RecentMaintenance []BackupRepositoryMaintenanceStatus `json:"recentMaintenance,omitempty"`
}

// BackupRepositoryMaintenanceStatus is one run of a repository's maintenance.
type BackupRepositoryMaintenanceStatus struct {
	// +optional
	Result BackupRepositoryMaintenanceResult `json:"result,omitempty"`
	// +optional
	// +nullable
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// +optional
	// +nullable
	CompleteTimestamp *metav1.Time `json:"completeTimestamp,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}

// The Secret with the password of all repositories of a server namespace, in which a Velero server has its known default.
const (
	RepositorySecret          = "velero-repo-credentials"
	RepositoryPasswordKey     = "repository-password"
	DefaultRepositoryPassword = "static-passw0rd"
)
