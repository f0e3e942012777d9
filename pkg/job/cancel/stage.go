package cancel

import (
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// CancelStage is what a request to stop means to a job.
type CancelStage int

// The stages of a job.
const (
	// Waiting: it is not claimed, and nothing was done for it. It ends by one write.
	Waiting CancelStage = iota + 1
	// Running: its holder has to stop it.
	Running
	// Closing: it is about to end.
	Closing
	// Ended: its phase is terminal.
	Ended
)

// BackupStage is where a Backup stands.
func BackupStage(b *velerov1.Backup) CancelStage {
	switch phase := b.Status.Phase; {
	case phase.Terminal():
		return Ended
	case phase.IsNew(), phase == velerov1.BackupPhaseQueued, phase == velerov1.BackupPhaseReadyToStart:
		return Waiting
	case !IsCommitting(b):
		return Running
	}
	return Closing
}

// RestoreStage is where a Restore stands.
func RestoreStage(r *velerov1.Restore) CancelStage {
	switch phase := r.Status.Phase; {
	case phase.Terminal():
		return Ended
	case phase.IsNew():
		return Waiting
	case !IsCommitting(r):
		return Running
	}
	return Closing
}
