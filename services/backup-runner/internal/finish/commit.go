package finish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// ErrForeign means that the bucket holds a backup of that name which is not this
// Backup object's.
var ErrForeign = errors.New("backup already exists in object storage")

// Complete commits the backup with the phase of its composition and returns the
// committed object. Should another holder have committed before, what it wrote
// stands and is returned.
func (j *Job) Complete(ctx context.Context, phase velerov1.BackupPhase, p Published) (*velerov1.Backup, error) {
	final := j.final(phase)
	final.Status.Warnings, final.Status.Errors = p.Warnings, p.Errors
	final.Status.Progress = &velerov1.BackupProgress{TotalItems: p.Items, ItemsBackedUp: p.Items}
	return j.commit(ctx, final)
}

// Fail commits the backup as Failed, unless it was committed before. The verdict
// is recorded already, or cannot be.
func (j *Job) Fail(ctx context.Context, verdict checkpoint.Failure) (*velerov1.Backup, error) {
	j.publishFailure(ctx, verdict)
	final := j.final(velerov1.BackupPhaseFailed)
	final.Status.FailureReason = verdict.Reason
	final.Status.Errors = max(final.Status.Errors, 1)
	return j.commit(ctx, final)
}

func (j *Job) final(phase velerov1.BackupPhase) *velerov1.Backup {
	final := j.Backup.DeepCopy()
	final.SetGroupVersionKind(velerov1.GroupVersion.WithKind("Backup"))
	final.Status.Version = 1
	final.Status.FormatVersion = manifest.FormatVersion
	final.Status.Phase = phase
	final.Status.QueuePosition = 0
	if final.Status.HookStatus == nil {
		final.Status.HookStatus = &velerov1.HookStatus{} // Velero 1.18 writes it also when no hook ran
	}
	now := metav1.NewTime(j.Clock.Now().Truncate(1e9)) // the precision JSON keeps
	final.Status.CompletionTimestamp = &now
	return final
}

// commit creates the metadata file: the one moment that decides.
func (j *Job) commit(ctx context.Context, final *velerov1.Backup) (*velerov1.Backup, error) {
	data, err := json.MarshalIndent(final, "", "    ")
	if err != nil {
		return nil, fmt.Errorf("encode the backup: %w", err)
	}
	err = objectstore.CreateBytes(ctx, j.Store, layout.BackupMetadata(final.Name), data)
	if errors.Is(err, objectstore.ErrExists) {
		committed, found, err := Committed(ctx, j.Store, j.Backup)
		if err == nil && !found {
			err = fmt.Errorf("%s was deleted while it was read", layout.BackupMetadata(final.Name))
		}
		return committed, err
	}
	if err != nil {
		return nil, fmt.Errorf("commit the backup: %w", err)
	}
	failpoint.Hit("backup-runner/committed")
	return final, nil
}

// maxMetadataBytes is far above what an API server stores of one object.
const maxMetadataBytes = 16 << 20

// Committed returns the committed object of a backup, false while there is none,
// or ErrForeign if it is another Backup's.
func Committed(ctx context.Context, store objectstore.Reader, b *velerov1.Backup) (*velerov1.Backup, bool, error) {
	key := layout.BackupMetadata(b.Name)
	data, err := objectstore.ReadAll(ctx, store, key, maxMetadataBytes)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil, false, nil
	case errors.Is(err, objectstore.ErrSize):
		return nil, true, ErrForeign
	case err != nil:
		return nil, false, fmt.Errorf("read %s: %w", key, err)
	}
	var committed velerov1.Backup
	if err := json.Unmarshal(data, &committed); err != nil || committed.UID != b.UID {
		return nil, true, ErrForeign
	}
	return &committed, true, nil
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
