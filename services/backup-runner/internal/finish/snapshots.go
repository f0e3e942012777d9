package finish

import (
	"context"
	"errors"
	"os"

	"github.com/holdfast-io/holdfast/pkg/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// publishSnapshots lists the native snapshots of a backup that fails: what the
// records say, whether or not they belong to a composition. One whose fate nobody
// recorded is of phase New; without any there is no list. A record that cannot be understood, which may be why
// the backup fails, is left out.
func (j *Job) publishSnapshots(ctx context.Context) (begun, completed int, err error) {
	intended, about := map[string]nativesnapshot.Snapshot{}, j.volumes()
	defer about.close()
	err = j.eachRecord(ctx, func(rec *checkpoint.Record) error {
		for i := range rec.Intended {
			intended[rec.Intended[i].Spec.PersistentVolumeName] = rec.Intended[i]
		}
		for i := range rec.Snapshots {
			delete(intended, rec.Snapshots[i].Spec.PersistentVolumeName)
		}
		return about.add(&checkpoint.Record{Snapshots: rec.Snapshots})
	})
	if err != nil {
		return 0, 0, err
	}
	for _, s := range intended {
		if err := about.add(&checkpoint.Record{Snapshots: []nativesnapshot.Snapshot{s}}); err != nil {
			return 0, 0, err
		}
	}
	if about.begun == 0 {
		return 0, 0, nil
	}
	file, err := about.snapshots.file()
	if err != nil {
		return 0, 0, err
	}
	defer remove(file)
	return about.begun, about.completed, j.createOnce(ctx, layout.BackupVolumeSnapshots(j.Backup.Name), file.Path)
}

// eachRecord calls fn with the records of the backup that can be read.
func (j *Job) eachRecord(ctx context.Context, fn func(rec *checkpoint.Record) error) error {
	name, uid := j.Backup.Name, string(j.Backup.UID)
	var keys []string
	err := j.Store.List(ctx, layout.CheckpointPrefix(name, uid), func(i objectstore.Info) error {
		keys = append(keys, i.Key)
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range keys {
		err := checkpoint.Each(ctx, j.Store, name, uid, []string{key}, func(_ string, rec *checkpoint.Record) error { return fn(rec) })
		switch {
		case errors.Is(err, checkpoint.ErrClosing):
		case errors.Is(err, journal.ErrCorrupt), errors.Is(err, objectstore.ErrSize), errors.Is(err, objectstore.ErrNotFound):
			j.Log.WarnContext(ctx, "a record cannot be read: snapshots it tells of are not listed, and deleting the backup leaves them behind",
				"record", key, "error", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// createOnce creates an object unless there is one: an earlier attempt listed the
// same snapshots.
func (j *Job) createOnce(ctx context.Context, key, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := objectstore.CreateBytes(ctx, j.Store, key, data); !errors.Is(err, objectstore.ErrExists) {
		return err
	}
	return nil
}
