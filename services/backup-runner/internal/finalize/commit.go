package finalize

import (
	"context"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
)

// commitBackup commits the backup as Completed or, with errors, as PartiallyFailed. Should another
// holder have committed before, what it wrote stands.
func commitBackup(ctx context.Context, s *State) error {
	c := &s.Contents
	phase := velerov1.BackupPhaseCompleted
	if c.Errors > 0 {
		phase = velerov1.BackupPhasePartiallyFailed
	}
	final := commit.Final(s.Backup, phase, s.Clock.Now())
	final.Status.Warnings, final.Status.Errors = c.Warnings, c.Errors
	final.Status.VolumeSnapshotsAttempted, final.Status.VolumeSnapshotsCompleted = c.Snapshots, c.Completed
	s.countOperations(&final.Status)
	final.Status.HookStatus = &c.Hooks
	final.Status.Progress = &velerov1.BackupProgress{TotalItems: c.Items, ItemsBackedUp: c.Items}
	return s.commitMetadata(ctx, final)
}

// countOperations counts the operations of the backup, and the CSI snapshots among them.
func (s *State) countOperations(status *velerov1.BackupStatus) {
	if s.Operations != nil {
		status.BackupItemOperationsAttempted = len(s.Operations.Operations())
		status.BackupItemOperationsCompleted, status.BackupItemOperationsFailed = s.Operations.Count()
	}
	status.CSIVolumeSnapshotsAttempted, status.CSIVolumeSnapshotsCompleted = s.countSnapshots()
}

// commitMetadata creates the metadata file, which decides the end of the backup.
func (s *State) commitMetadata(ctx context.Context, final *velerov1.Backup) error {
	committed, created, err := commit.Commit(ctx, s.Store, final)
	if err != nil {
		return err
	}
	if created {
		failpoint.Hit("backup-runner/committed")
	}
	s.Final = committed
	return nil
}

// writePhase copies the end to the object.
func writePhase(ctx context.Context, s *State) error {
	return s.Holder.Finish(ctx, s.Final, s.Contents)
}
