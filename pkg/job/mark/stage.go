package mark

import (
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// CancelStage is what a request to stop means to a job.
type CancelStage int

// The stages of a job.
const (
	// StageWaiting: it is not claimed, and nothing was done for it. It ends by one write.
	StageWaiting CancelStage = iota + 1
	// StageRunning: its holder has to stop it.
	StageRunning
	// StageClosing: it is about to end.
	StageClosing
	// StageEnded: its phase is terminal.
	StageEnded
)

// BackupStage is where a Backup stands.
func BackupStage(b *velerov1.Backup) CancelStage {
	switch phase := b.Status.Phase; {
	case phase.Terminal():
		return StageEnded
	case phase.IsNew(), phase == velerov1.BackupPhaseQueued, phase == velerov1.BackupPhaseReadyToStart:
		return StageWaiting
	case !IsCommitting(b):
		return StageRunning
	}
	return StageClosing
}

// RestoreStage is where a Restore stands.
func RestoreStage(r *velerov1.Restore) CancelStage {
	switch phase := r.Status.Phase; {
	case phase.Terminal():
		return StageEnded
	case phase.IsNew():
		return StageWaiting
	case !IsCommitting(r):
		return StageRunning
	}
	return StageClosing
}
