package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Schedule makes a Backup from a template whenever its cron expression is due.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=schedules,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.phase",description="Status of the schedule"
// +kubebuilder:printcolumn:name="Schedule",type="string",JSONPath=".spec.schedule",description="A Cron expression defining when to run the Backup"
// +kubebuilder:printcolumn:name="LastBackup",type="date",JSONPath=".status.lastBackup",description="The last time a Backup was run for this schedule"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Paused",type="boolean",JSONPath=".spec.paused"
type Schedule struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec ScheduleSpec `json:"spec,omitempty"`
	// +optional
	Status ScheduleStatus `json:"status,omitempty"`
}

// ScheduleList is a list of Schedules.
//
// +kubebuilder:object:root=true
type ScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Schedule `json:"items"`
}

// ScheduleSpec defines when to make a Backup and which.
type ScheduleSpec struct {
	// Template is the spec of each Backup.
	Template BackupSpec `json:"template"`
	// Schedule is a cron expression of five fields or a descriptor (@hourly).
	Schedule string `json:"schedule"`
	// UseOwnerReferencesInBackup makes the Schedule the owner of its Backups.
	// +optional
	// +nullable
	UseOwnerReferencesInBackup *bool `json:"useOwnerReferencesInBackup,omitempty"`
	// Paused stops the making of Backups.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// SkipImmediately skips a Backup that is due when the Schedule is created or unpaused; unset is
	// the server's default.
	// +optional
	SkipImmediately *bool `json:"skipImmediately,omitempty"`
}

// SchedulePhase is where a Schedule stands. The empty phase means New.
//
// +kubebuilder:validation:Enum=New;Enabled;FailedValidation
type SchedulePhase string

// The phases of a Schedule (Velero 1.18).
const (
	SchedulePhaseNew              SchedulePhase = "New"
	SchedulePhaseEnabled          SchedulePhase = "Enabled"
	SchedulePhaseFailedValidation SchedulePhase = "FailedValidation"
)

// ScheduleStatus is what became of a Schedule.
type ScheduleStatus struct {
	// +optional
	Phase SchedulePhase `json:"phase,omitempty"`
	// LastBackup is when the last Backup was made.
	// +optional
	// +nullable
	LastBackup *metav1.Time `json:"lastBackup,omitempty"`
	// LastSkipped is when a due Backup was last skipped.
	// +optional
	// +nullable
	LastSkipped *metav1.Time `json:"lastSkipped,omitempty"`
	// ValidationErrors are the reasons why the phase is FailedValidation.
	// +optional
	ValidationErrors []string `json:"validationErrors,omitempty"`
}
