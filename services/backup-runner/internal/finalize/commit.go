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
	if s.Operations != nil {
		final.Status.BackupItemOperationsAttempted = len(s.Operations.Operations())
		final.Status.BackupItemOperationsCompleted, final.Status.BackupItemOperationsFailed = s.Operations.Count()
	}
	final.Status.HookStatus = &c.Hooks
	final.Status.CSIVolumeSnapshotsAttempted, final.Status.CSIVolumeSnapshotsCompleted = s.countSnapshots()
	final.Status.Progress = &velerov1.BackupProgress{TotalItems: c.Items, ItemsBackedUp: c.Items}
	return s.commit(ctx, final)
}

// commit creates the metadata file, which decides the end of the backup.
func (s *State) commit(ctx context.Context, final *velerov1.Backup) error {
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
