package leftover

import (
	"context"
	"errors"
	"path"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Backup is the Job of a backup. The fields Store, Dir, Source, Now and Confirm are not set.
func Backup(b *velerov1.Backup) *Job {
	return &Job{
		Owner:      operation.Job{Kind: operation.KindBackup, Name: b.Name, UID: string(b.UID)},
		Operations: layout.BackupItemOperations(b.Name), Results: layout.BackupResults(b.Name), Log: layout.BackupLog(b.Name),
		Field: "backup", Value: b.Namespace + "/" + b.Name, Message: joblog.ResultMessage,
		counted: counters{b.Status.BackupItemOperationsAttempted, b.Status.BackupItemOperationsCompleted, b.Status.BackupItemOperationsFailed},
	}
}

// Restore is the Job of a restore. The fields Store, Dir, Source, Now and Confirm are not set.
func Restore(r *velerov1.Restore) *Job {
	return &Job{
		Owner:      operation.Job{Kind: operation.KindRestore, Name: r.Name, UID: string(r.UID)},
		Operations: layout.RestoreItemOperations(r.Name), Results: layout.RestoreResults(r.Name), Log: layout.RestoreLog(r.Name),
		Field: "restore", Value: r.Namespace + "/" + r.Name, Message: plain,
		counted: counters{r.Status.RestoreItemOperationsAttempted, r.Status.RestoreItemOperationsCompleted, r.Status.RestoreItemOperationsFailed},
	}
}

// plain is an entry as the results of a restore have it.
func plain(e *joblog.Entry) string {
	text := e.Message
	if e.Err != "" {
		text += ": " + e.Err
	}
	if e.Scoped {
		text = e.Resource + " " + path.Join(e.Namespace, e.Name) + ": " + text
	}
	return text
}

// Restored reports whether a runner of this version restored the objects of a restore: it has sealed
// the operations, or left records at least. A damaged list counts as one that it sealed.
func Restored(ctx context.Context, store objectstore.Reader, owner operation.Job) (bool, error) {
	list, err := operation.Sealed(ctx, store, owner)
	switch {
	case err == nil, errors.Is(err, operation.ErrDamaged):
		return !list.Inherited, nil
	case !errors.Is(err, objectstore.ErrNotFound):
		return false, err
	}
	return objectstore.Exists(ctx, store, layout.RestoreOwnerFile(owner.Name, owner.UID))
}

// Unread is the outcome of a job whose files were not read: it adds nothing, and keeps counters that
// the object has.
func (j *Job) Unread() *Outcome { return &Outcome{counted: j.counted} }

// Count adds what was found to the counts of a job, which have the errors that the other server
// counted.
func (o *Outcome) Count(failures, warnings *int) {
	*failures += o.Errors - min(o.Counted, *failures)
	*warnings += o.Warnings
}

// CountBackup adds what was found to the status of a backup.
func (o *Outcome) CountBackup(s *velerov1.BackupStatus) {
	o.Count(&s.Errors, &s.Warnings)
	o.setCounters(&s.BackupItemOperationsAttempted, &s.BackupItemOperationsCompleted, &s.BackupItemOperationsFailed)
	s.CSIVolumeSnapshotsCompleted = max(s.CSIVolumeSnapshotsCompleted, o.Snapshots)
}

// CountRestore adds what was found to the status of a restore.
func (o *Outcome) CountRestore(s *velerov1.RestoreStatus) {
	o.Count(&s.Errors, &s.Warnings)
	o.setCounters(&s.RestoreItemOperationsAttempted, &s.RestoreItemOperationsCompleted, &s.RestoreItemOperationsFailed)
}

// counters are those of the operations in the status of a job.
type counters struct{ attempted, completed, failed int }

// setCounters sets the counters of operations. Where no file tells of any they are those of the status,
// or of the job's object where it is ahead of the metadata file in the bucket; where the file is
// damaged those that had not completed have failed.
func (o *Outcome) setCounters(attempted, completed, failed *int) {
	if n := o.Completed + o.Failed; n > 0 {
		*attempted, *completed, *failed = max(*attempted, n), o.Completed, o.Failed
		return
	}
	*attempted, *completed, *failed = max(*attempted, o.counted.attempted), max(*completed, o.counted.completed), max(*failed, o.counted.failed)
	if o.damaged {
		*failed = max(*failed, *attempted-*completed)
	}
}
