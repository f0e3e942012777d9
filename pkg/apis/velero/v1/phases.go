package v1

import "time"

// BackupPhase is where a Backup stands. The empty phase means New.
//
// +kubebuilder:validation:Enum=New;Queued;ReadyToStart;FailedValidation;InProgress;WaitingForPluginOperations;WaitingForPluginOperationsPartiallyFailed;Finalizing;FinalizingPartiallyFailed;Completed;PartiallyFailed;Failed;Deleting
type BackupPhase string

// The phases of a Backup (Velero 1.18).
const (
	BackupPhaseNew                                       BackupPhase = "New"
	BackupPhaseQueued                                    BackupPhase = "Queued"
	BackupPhaseReadyToStart                              BackupPhase = "ReadyToStart"
	BackupPhaseFailedValidation                          BackupPhase = "FailedValidation"
	BackupPhaseInProgress                                BackupPhase = "InProgress"
	BackupPhaseWaitingForPluginOperations                BackupPhase = "WaitingForPluginOperations"
	BackupPhaseWaitingForPluginOperationsPartiallyFailed BackupPhase = "WaitingForPluginOperationsPartiallyFailed"
	BackupPhaseFinalizing                                BackupPhase = "Finalizing"
	BackupPhaseFinalizingPartiallyFailed                 BackupPhase = "FinalizingPartiallyFailed"
	BackupPhaseCompleted                                 BackupPhase = "Completed"
	BackupPhasePartiallyFailed                           BackupPhase = "PartiallyFailed"
	BackupPhaseFailed                                    BackupPhase = "Failed"
	BackupPhaseDeleting                                  BackupPhase = "Deleting"
)

// Terminal reports whether the phase is an end of the backup's run. Deleting follows a terminal
// phase and counts as one.
func (p BackupPhase) Terminal() bool {
	switch p {
	case BackupPhaseFailedValidation, BackupPhaseCompleted, BackupPhasePartiallyFailed,
		BackupPhaseFailed, BackupPhaseDeleting:
		return true
	default:
		return false
	}
}

// IsNew reports whether no service has acted on the backup yet.
func (p BackupPhase) IsNew() bool { return p == "" || p == BackupPhaseNew }

// RestorePhase is where a Restore stands. The empty phase means New.
//
// +kubebuilder:validation:Enum=New;FailedValidation;InProgress;WaitingForPluginOperations;WaitingForPluginOperationsPartiallyFailed;Completed;PartiallyFailed;Failed;Finalizing;FinalizingPartiallyFailed
type RestorePhase string

// The phases of a Restore (Velero 1.18).
const (
	RestorePhaseNew                                       RestorePhase = "New"
	RestorePhaseFailedValidation                          RestorePhase = "FailedValidation"
	RestorePhaseInProgress                                RestorePhase = "InProgress"
	RestorePhaseWaitingForPluginOperations                RestorePhase = "WaitingForPluginOperations"
	RestorePhaseWaitingForPluginOperationsPartiallyFailed RestorePhase = "WaitingForPluginOperationsPartiallyFailed"
	RestorePhaseFinalizing                                RestorePhase = "Finalizing"
	RestorePhaseFinalizingPartiallyFailed                 RestorePhase = "FinalizingPartiallyFailed"
	RestorePhaseCompleted                                 RestorePhase = "Completed"
	RestorePhasePartiallyFailed                           RestorePhase = "PartiallyFailed"
	RestorePhaseFailed                                    RestorePhase = "Failed"
)

// Terminal reports whether the phase is an end of the restore's run.
func (p RestorePhase) Terminal() bool {
	switch p {
	case RestorePhaseFailedValidation, RestorePhaseCompleted, RestorePhasePartiallyFailed, RestorePhaseFailed:
		return true
	default:
		return false
	}
}

// IsNew reports whether no service has acted on the restore yet.
func (p RestorePhase) IsNew() bool { return p == "" || p == RestorePhaseNew }

// settledAge is the age of a terminal phase from which on a runner that had lost the claim creates
// nothing more.
const settledAge = 30 * time.Second

// Settled reports whether the restore ended so long before now that no runner creates anything for it.
func (s *RestoreStatus) Settled(now time.Time) bool {
	at := s.CompletionTimestamp
	return s.Phase.Terminal() && (at == nil || now.Sub(at.Time) >= settledAge)
}
