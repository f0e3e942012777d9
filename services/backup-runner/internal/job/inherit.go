package job

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/cancel"
	"github.com/holdfast-io/holdfast/pkg/ending"
	"github.com/holdfast-io/holdfast/pkg/finalize"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finish"
)

// finalizing tells of the phases in which another server left a backup whose items
// it had stored: the runners of this version finalize within the claim of InProgress.
func finalizing(p velerov1.BackupPhase) bool {
	return p == velerov1.BackupPhaseFinalizing || p == velerov1.BackupPhaseFinalizingPartiallyFailed
}

// inherit ends a backup that another server stored and left unfinished, from what
// the bucket holds: stored is its metadata file. Whoever does it again comes to the
// same end; a request to stop that came in time is that end.
func (j *execution) inherit(ctx context.Context, out *finish.Job, stored *velerov1.Backup) (*velerov1.Backup, error) {
	if j.broken {
		final := ending.Inherited(stored, velerov1.BackupPhasePartiallyFailed, j.Clock.Now())
		final.Status.FailureReason = errInternal.Error()
		return final, nil
	}
	final, err := j.finalize(ctx, out, stored)
	if err == nil {
		err = j.mark(ctx)
	}
	var asked *cancel.Error
	switch {
	case errors.As(err, &asked):
		final = ending.Inherited(stored, velerov1.BackupPhaseFailed, j.Clock.Now())
		final.Status.FailureReason, final.Status.Errors = asked.Error(), max(stored.Status.Errors, 1)
	case err != nil:
		return nil, err
	}
	if err := j.confirm(ctx); err != nil {
		return nil, err
	}
	return final, ending.Replace(ctx, out.Store, final)
}

// finalize completes the files of an inherited backup and returns how it ends. The
// error is a *cancel.Error once the backup is asked to stop.
func (j *execution) finalize(ctx context.Context, out *finish.Job, stored *velerov1.Backup) (_ *velerov1.Backup, err error) {
	ctx, release := j.cancellable(ctx)
	defer release()
	defer func() {
		if asked := j.calledOff(); asked != nil && err != nil && !stopped(j.lasting, err) {
			err = asked
		}
	}()
	name := j.backup.Name
	files := &finalize.Job{
		Store: out.Store, Dir: out.Dir, Operations: layout.BackupItemOperations(name), Results: layout.BackupResults(name), Log: layout.BackupLog(name),
		Field: "backup", Value: j.backup.Namespace + "/" + name, Source: "holdfast/backup-runner", Message: joblog.ResultMessage,
		Now: j.Clock.Now().UTC(), Confirm: j.confirm,
	}
	found, err := files.Look(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	if err := files.Publish(ctx, found); errors.Is(err, finalize.ErrLeft) {
		j.log.WarnContext(ctx, "results of the backup do not tell what was found while it was finalized", "error", err)
	} else if err != nil {
		return nil, fmt.Errorf("complete the files of the backup: %w", err)
	}
	phase := velerov1.BackupPhaseCompleted
	if found.Errors > 0 || failing(stored.Status.Phase) || failing(j.claimed.Status.Phase) {
		phase = velerov1.BackupPhasePartiallyFailed
	}
	final := ending.Inherited(stored, phase, j.Clock.Now())
	s := &final.Status
	s.Errors, s.Warnings = s.Errors+found.Errors, s.Warnings+found.Warnings
	s.BackupItemOperationsAttempted = max(s.BackupItemOperationsAttempted, found.Completed+found.Failed)
	s.BackupItemOperationsCompleted, s.BackupItemOperationsFailed = found.Completed, found.Failed
	s.CSIVolumeSnapshotsCompleted = max(s.CSIVolumeSnapshotsCompleted, found.Snapshots)
	return final, nil
}

// failing tells of the phases of a backup that cannot end without an error.
func failing(p velerov1.BackupPhase) bool {
	return p == velerov1.BackupPhaseFinalizingPartiallyFailed || p == velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
}
