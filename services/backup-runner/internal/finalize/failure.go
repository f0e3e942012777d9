package finalize

import (
	"context"
	"errors"
	"os"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/step"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// ErrComposed means that the backup does not fail: while this holder failed to collect, another one
// fixed the composition, which is followed.
var ErrComposed = errors.New("another holder fixed the composition")

// lookForCommit ends the list where the backup was committed before: then the work failed only
// because its end had come already.
func lookForCommit(ctx context.Context, s *State) error {
	committed, found, err := commit.Committed(ctx, s.Store, s.Backup)
	if err != nil || !found {
		return err
	}
	s.Decide(committed)
	return step.ErrDecided
}

// recordFailure makes the failure durable before a log, a file or the object reports it: a later
// holder ends the backup with the same failure, even where its own attempt would succeed. The
// record takes the name of the composition's; if that exists and cannot be assembled, it gets one
// of its own.
func recordFailure(ctx context.Context, s *State) error {
	if err := s.checkPresent(ctx); err != nil {
		return err
	}
	failure, err := s.readFailure(ctx)
	if err == nil {
		err = s.checkPresent(ctx)
	}
	if err != nil {
		return err
	}
	s.Failure, s.Contents = failure, Contents{}
	s.Log.ErrorContext(ctx, "Backup failed", "error", failure.Reason)
	return nil
}

func (s *State) readFailure(ctx context.Context) (checkpoint.Failure, error) {
	var known *recordedError
	if errors.As(s.Cause, &known) {
		return known.failure, nil
	}
	failure := checkpoint.Failure{Reason: s.Cause.Error(), Time: s.Clock.Now().UTC().Truncate(time.Millisecond)}
	name, uid := s.Backup.Name, string(s.Backup.UID)
	if s.Composition == nil {
		c, err := checkpoint.RecordComposition(ctx, s.Store, checkpoint.Composition{
			Backup: name, UID: uid, Epoch: s.Epoch, Phase: velerov1.BackupPhaseFailed, Failure: &failure,
		})
		switch {
		case err == nil && c.Failure != nil:
			return *c.Failure, nil
		case err == nil && s.GivenUp == nil && !isCancelled(s.Cause):
			return failure, ErrComposed
		case err != nil && !errors.Is(err, checkpoint.ErrDamaged):
			return s.unrecordedFailure(ctx, failure, err)
		}
		// The composition stands, and is not followed any more or cannot be read.
	}
	recorded, err := checkpoint.RecordFailure(ctx, s.Store, name, uid, failure)
	if err != nil {
		return s.unrecordedFailure(ctx, failure, err)
	}
	return recorded, nil
}

// isCancelled reports that the backup fails because it is asked to stop. Its composition is not followed then, also where this
// holder has not read it.
func isCancelled(cause error) bool {
	var request *mark.CancelError
	return errors.As(cause, &request)
}

// unrecordedFailure lets a failure stand without a record where none can be had: the bucket refuses it,
// and so the work of any other holder, or the record is damaged or would be too large.
func (s *State) unrecordedFailure(ctx context.Context, failure checkpoint.Failure, err error) (checkpoint.Failure, error) {
	if !retrystore.Refused(err) && !errors.Is(err, checkpoint.ErrDamaged) && !errors.Is(err, checkpoint.ErrTooLarge) {
		return failure, err
	}
	s.Log.WarnContext(ctx, "Failed to record the failure of the backup; publishing it without a record", "error", err)
	return failure, nil
}

// explainFailure stores a log and results with the reason of the failure. It is best effort: the
// metadata file, written next, has it too.
func explainFailure(ctx context.Context, s *State) error {
	err := commit.Explain(ctx, s.Store, s.Dir, s.Backup, s.Cluster,
		commit.Failure{Reason: s.Failure.Reason, Time: s.Failure.Time, Source: "holdfast/backup-runner", Notes: s.operationNotes()})
	if err != nil {
		s.Log.WarnContext(ctx, "Failed to store the log of the failed backup", "error", err)
	}
	return nil
}

// commitFailure commits the backup as Failed, unless it was committed before.
func commitFailure(ctx context.Context, s *State) error {
	final := commit.Failed(s.Backup, s.Failure.Reason, s.Clock.Now())
	s.countOperations(&final.Status)
	final.Status.HookStatus = &s.Contents.Hooks
	final.Status.VolumeSnapshotsAttempted, final.Status.VolumeSnapshotsCompleted = s.Contents.Snapshots, s.Contents.Completed
	return s.commitMetadata(ctx, final)
}

// listSnapshots lists the native snapshots of a backup that fails, since the list is what a
// deletion finds them by: those of the records, whether or not they belong to a composition. One
// without a recorded result is of phase New; without any there is no list. A record that cannot be
// understood, which may be why the backup fails, is left out. The operations of the records are
// kept for endOperations.
func listSnapshots(ctx context.Context, s *State) error {
	intended, about := map[string]nativesnapshot.Snapshot{}, newAboutVolumes(s.Dir)
	defer about.close()
	s.begun = nil
	err := s.eachRecord(ctx, func(rec *checkpoint.Record) error {
		s.keepBegun(rec)
		for i := range rec.Intended {
			intended[rec.Intended[i].Spec.PersistentVolumeName] = rec.Intended[i]
		}
		for i := range rec.Snapshots {
			delete(intended, rec.Snapshots[i].Spec.PersistentVolumeName)
		}
		return about.addRecord(&checkpoint.Record{Snapshots: rec.Snapshots})
	})
	if err != nil {
		return err
	}
	for _, snapshot := range intended {
		if err := about.addRecord(&checkpoint.Record{Snapshots: []nativesnapshot.Snapshot{snapshot}}); err != nil {
			return err
		}
	}
	s.Contents.Snapshots, s.Contents.Completed = about.begun, about.completed
	if about.begun == 0 {
		return nil
	}
	file, err := about.snapshots.createFile()
	if err != nil {
		return err
	}
	defer removeFiles(file)
	return s.createOnce(ctx, layout.BackupVolumeSnapshots(s.Backup.Name), file.Path)
}

// eachRecord calls fn with the records of the backup that can be read.
func (s *State) eachRecord(ctx context.Context, fn func(rec *checkpoint.Record) error) error {
	name, uid := s.Backup.Name, string(s.Backup.UID)
	var keys []string
	err := s.Store.List(ctx, layout.CheckpointPrefix(name, uid), func(i objectstore.Info) error {
		keys = append(keys, i.Key)
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range keys {
		err := checkpoint.Each(ctx, s.Store, name, uid, []string{key}, func(_ string, rec *checkpoint.Record) error { return fn(rec) })
		switch {
		case errors.Is(err, checkpoint.ErrClosing):
		case errors.Is(err, journal.ErrCorrupt), errors.Is(err, objectstore.ErrSize), errors.Is(err, objectstore.ErrNotFound):
			s.Log.WarnContext(ctx, "Failed to read a record; the snapshots in it are not listed, and the deletion of the backup leaves them behind",
				"record", key, "error", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// createOnce creates an object unless there is one: an earlier attempt listed the same snapshots.
func (s *State) createOnce(ctx context.Context, key, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := objectstore.CreateBytes(ctx, s.Store, key, data); !errors.Is(err, objectstore.ErrExists) {
		return err
	}
	return nil
}
