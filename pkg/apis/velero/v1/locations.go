package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupStorageLocation is a place in an object store where backups are kept.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=backupstoragelocations,scope=Namespaced,shortName=bsl
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase",description="Backup Storage Location status such as Available/Unavailable"
// +kubebuilder:printcolumn:name="Last Validated",type="date",JSONPath=".status.lastValidationTime",description="LastValidationTime is the last time the backup store location was validated"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Default",type="boolean",JSONPath=".spec.default",description="Default backup storage location"
type BackupStorageLocation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec BackupStorageLocationSpec `json:"spec,omitempty"`
	// +optional
	Status BackupStorageLocationStatus `json:"status,omitempty"`
}

// BackupStorageLocationList is a list of BackupStorageLocations.
//
// +kubebuilder:object:root=true
type BackupStorageLocationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BackupStorageLocation `json:"items"`
}

// BackupStorageLocationSpec defines where the place is and how it is used.
type BackupStorageLocationSpec struct {
	// Provider names the object store's provider; a name without a slash has the prefix
	// "velero.io/".
	Provider string `json:"provider"`
	// Config is the provider's own configuration.
	// +optional
	Config map[string]string `json:"config,omitempty"`
	// Credential names the key of a Secret with the provider's credentials.
	// +optional
	Credential *corev1.SecretKeySelector `json:"credential,omitempty"`
	// StorageType is the object storage; its fields appear in spec directly.
	StorageType `json:",inline"`
	// Default marks the location of backups that name none.
	// +optional
	Default bool `json:"default,omitempty"`
	// AccessMode is how the location may be used; empty is ReadWrite.
	// +optional
	AccessMode BackupStorageLocationAccessMode `json:"accessMode,omitempty"`
	// BackupSyncPeriod is how often the location is searched for backups; zero is never, unset is
	// the server's default.
	// +optional
	// +nullable
	BackupSyncPeriod *metav1.Duration `json:"backupSyncPeriod,omitempty"`
	// ValidationFrequency is how often the location is validated; zero is once, unset is the
	// server's default.
	// +optional
	// +nullable
	ValidationFrequency *metav1.Duration `json:"validationFrequency,omitempty"`
}

// StorageType is one of the kinds of storage; there is only one.
type StorageType struct {
	ObjectStorage *ObjectStorageLocation `json:"objectStorage"`
}

// ObjectStorageLocation is a prefix in a bucket.
type ObjectStorageLocation struct {
	// Bucket holds the backups.
	Bucket string `json:"bucket"`
	// Prefix of every key in the bucket; slashes around it do not matter.
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// CACert is a PEM bundle for the endpoint's certificate. Deprecated in favour of CACertRef;
	// both together make the location unavailable.
	// +optional
	CACert []byte `json:"caCert,omitempty"`
	// CACertRef names the key of a Secret with a PEM bundle.
	// +optional
	CACertRef *corev1.SecretKeySelector `json:"caCertRef,omitempty"`
}

// BackupStorageLocationAccessMode defines how a location may be used.
//
// +kubebuilder:validation:Enum=ReadOnly;ReadWrite
type BackupStorageLocationAccessMode string

// The access modes of a location; empty is ReadWrite.
const (
	LocationModeReadOnly  BackupStorageLocationAccessMode = "ReadOnly"
	LocationModeReadWrite BackupStorageLocationAccessMode = "ReadWrite"
)

// BackupStorageLocationPhase is where a location stands. A location without a phase has not been
// validated and is not used.
//
// +kubebuilder:validation:Enum=Available;Unavailable
type BackupStorageLocationPhase string

// The phases of a location (Velero 1.18).
const (
	LocationPhaseAvailable   BackupStorageLocationPhase = "Available"
	LocationPhaseUnavailable BackupStorageLocationPhase = "Unavailable"
)

// BackupStorageLocationStatus is what the last validation and sync found.
type BackupStorageLocationStatus struct {
	// +optional
	Phase BackupStorageLocationPhase `json:"phase,omitempty"`
	// LastSyncedTime is when the bucket was last searched for backups.
	// +optional
	// +nullable
	LastSyncedTime *metav1.Time `json:"lastSyncedTime,omitempty"`
	// LastValidationTime is when the location was last validated.
	// +optional
	// +nullable
	LastValidationTime *metav1.Time `json:"lastValidationTime,omitempty"`
	// Message is the reason why the location is unavailable, or what is worth knowing.
	// +optional
	Message string `json:"message,omitempty"`
	// LastSyncedRevision is deprecated and no longer set.
	// +optional
	LastSyncedRevision string `json:"lastSyncedRevision,omitempty"`
	// AccessMode is deprecated and no longer set; spec.accessMode counts.
	// +optional
	AccessMode BackupStorageLocationAccessMode `json:"accessMode,omitempty"`
}

// VolumeSnapshotLocation is a place where volume snapshots are kept.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=volumesnapshotlocations,scope=Namespaced,shortName=vsl
// +kubebuilder:storageversion
type VolumeSnapshotLocation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec VolumeSnapshotLocationSpec `json:"spec,omitempty"`
	// +optional
	Status VolumeSnapshotLocationStatus `json:"status,omitempty"`
}

// VolumeSnapshotLocationList is a list of VolumeSnapshotLocations.
//
// +kubebuilder:object:root=true
type VolumeSnapshotLocationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VolumeSnapshotLocation `json:"items"`
}

// VolumeSnapshotLocationSpec defines where the place is.
type VolumeSnapshotLocationSpec struct {
	// Provider names the volume snapshotter.
	Provider string `json:"provider"`
	// Config is the provider's own configuration.
	// +optional
	Config map[string]string `json:"config,omitempty"`
	// Credential names the key of a Secret with the provider's credentials.
	// +optional
	Credential *corev1.SecretKeySelector `json:"credential,omitempty"`
}

// VolumeSnapshotLocationPhase exists on the wire; nothing ever sets it.
//
// +kubebuilder:validation:Enum=Available;Unavailable
type VolumeSnapshotLocationPhase string

// VolumeSnapshotLocationStatus exists on the wire; nothing ever sets it.
type VolumeSnapshotLocationStatus struct {
	// +optional
	Phase VolumeSnapshotLocationPhase `json:"phase,omitempty"`
}

// InstalledCredential is the Secret that `velero install` makes, which serves locations that name
// none, where it exists.
func InstalledCredential() *corev1.SecretKeySelector {
	optional := true
	return &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "cloud-credentials"}, Key: "cloud", Optional: &optional}
}
