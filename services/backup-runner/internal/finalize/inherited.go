package finalize

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/archive/leftover"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/job/step"
)

// completeFiles completes the files of an inherited backup and finds out how it ends. After a panic
// the object alone has that, and the bucket stays as it is.
func completeFiles(ctx context.Context, s *State) error {
	if s.GivenUp != nil {
		final := commit.Inherited(s.Stored, velerov1.BackupPhasePartiallyFailed, s.Clock.Now())
		final.Status.FailureReason = s.GivenUp.Error()
		s.Decide(final)
		return step.ErrDecided
	}
	found, err := s.completed(ctx)
	if err != nil {
		return err
	}
	s.Final = s.inherited(found)
	return nil
}

// completed completes the files of an inherited backup in the bucket and returns what was found.
func (s *State) completed(ctx context.Context) (_ *leftover.Outcome, err error) {
	files := leftover.Backup(s.Backup)
	files.Store, files.Dir, files.Source, files.Now, files.Confirm = s.Store, s.Dir, "holdfast/backup-runner", s.Clock.Now().UTC(), s.Holder.Confirm
	found, err := files.Look(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	if err := files.Publish(ctx, found); errors.Is(err, leftover.ErrLeft) {
		s.Log.WarnContext(ctx, "results of the backup do not tell what was found while it was finalized", "error", err)
	} else if err != nil {
		return nil, fmt.Errorf("complete the files of the backup: %w", err)
	}
	return found, nil
}

// inherited is how an inherited backup ends with what was found.
func (s *State) inherited(found *leftover.Outcome) *velerov1.Backup {
	phase := velerov1.BackupPhaseCompleted
	if found.Errors > 0 || failing(s.Stored.Status.Phase) || failing(s.Claimed) {
		phase = velerov1.BackupPhasePartiallyFailed
	}
	final := commit.Inherited(s.Stored, phase, s.Clock.Now())
	found.CountBackup(&final.Status)
	return final
}

// failing reports the phases of a backup that cannot end without an error.
func failing(p velerov1.BackupPhase) bool {
	return p == velerov1.BackupPhaseFinalizingPartiallyFailed || p == velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
}

// cancelInherited makes the request to cancel the end. The files are completed all the same: the
// list of operations has the ends of those that were cancelled.
func cancelInherited(ctx context.Context, s *State) error {
	var asked *cancel.Error
	if !errors.As(s.Cause, &asked) {
		return s.Cause
	}
	found, err := s.completed(ctx)
	if err != nil {
		return err
	}
	s.Final = s.inherited(found)
	status := &s.Final.Status
	status.Phase, status.FailureReason, status.Errors = velerov1.BackupPhaseFailed, asked.Error(), max(status.Errors, 1)
	return nil
}

// replaceMetadata writes the end over the metadata file that the other server left.
func replaceMetadata(ctx context.Context, s *State) error {
	if err := s.Holder.Confirm(ctx); err != nil {
		return err
	}
	return commit.Replace(ctx, s.Store, s.Final)
}
