package finish

import (
	"context"
	"fmt"
	"io/fs"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/ending"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Complete commits the backup with the phase of its composition and returns the
// committed object. Should another holder have committed before, what it wrote
// stands and is returned.
func (j *Job) Complete(ctx context.Context, phase velerov1.BackupPhase, p Published) (*velerov1.Backup, error) {
	final := ending.Final(j.Backup, phase, j.Clock.Now())
	final.Status.Warnings, final.Status.Errors = p.Warnings, p.Errors
	final.Status.VolumeSnapshotsAttempted, final.Status.VolumeSnapshotsCompleted = p.Snapshots, p.Completed
	final.Status.Progress = &velerov1.BackupProgress{TotalItems: p.Items, ItemsBackedUp: p.Items}
	return j.commit(ctx, final)
}

// Fail commits the backup as Failed, unless it was committed before. The verdict
// is recorded already, or cannot be. The native snapshots that were taken are
// listed before, or nobody could ever delete them.
func (j *Job) Fail(ctx context.Context, verdict checkpoint.Failure) (*velerov1.Backup, error) {
	j.publishFailure(ctx, verdict)
	begun, completed, err := j.publishSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	final := ending.Failed(j.Backup, verdict.Reason, j.Clock.Now())
	final.Status.VolumeSnapshotsAttempted, final.Status.VolumeSnapshotsCompleted = begun, completed
	return j.commit(ctx, final)
}

// commit creates the metadata file.
func (j *Job) commit(ctx context.Context, final *velerov1.Backup) (*velerov1.Backup, error) {
	committed, created, err := ending.Commit(ctx, j.Store, final)
	if created {
		failpoint.Hit("backup-runner/committed")
	}
	return committed, err
}

// Sweep removes parts, sidecars and records of the committed backup.
func (j *Job) Sweep(ctx context.Context) error {
	failpoint.Hit("backup-runner/before-sweep")
	err := RemoveAll(ctx, j.Store, layout.PartsPrefix(j.Backup.Name, string(j.Backup.UID)), func(string) (bool, error) {
		failpoint.Hit("backup-runner/sweep")
		return true, nil
	})
	if err == nil {
		failpoint.Hit("backup-runner/swept")
	}
	return err
}

// RemoveAll deletes the objects under a prefix that may says go, of which all but
// a few must; its error ends the removal.
func RemoveAll(ctx context.Context, store objectstore.Store, prefix string, may func(key string) (bool, error)) error {
	for {
		keys, err := batch(ctx, store, prefix)
		if err != nil {
			return err
		}
		for _, key := range keys {
			ok, err := may(key)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if err := store.Delete(ctx, key); err != nil {
				return fmt.Errorf("remove %s: %w", key, err)
			}
		}
		if len(keys) < sweepBatch {
			return nil
		}
	}
}

const sweepBatch = 1000

// batch returns the first keys under a prefix: a store may not like to be changed
// while it lists.
func batch(ctx context.Context, store objectstore.Reader, prefix string) ([]string, error) {
	var keys []string
	err := store.List(ctx, prefix, func(info objectstore.Info) error {
		if keys = append(keys, info.Key); len(keys) == sweepBatch {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	return keys, nil
}
