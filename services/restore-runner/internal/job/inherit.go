package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/leftover"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// inherit ends a restore that another server left in a finalizing phase, with the counts of its
// files. Repeating it has the same result. A failure leaves the restore PartiallyFailed: its
// objects are in the cluster.
func (a *attempt) inherit(ctx context.Context) error {
	quick, done := a.closing(ctx)
	defer done()
	backup, err := a.readBackup(quick)
	if err != nil {
		return err
	}
	a.schedule = backup.Labels[velerov1.LabelScheduleName]
	in := newInputs(a.session)
	defer in.close()
	if in.store, err = a.openStore(quick, backup.Spec.StorageLocation); err != nil {
		return err
	}
	if err := emptyDir(in.dir, ""); err != nil {
		return err
	}
	found, err := a.complete(quick, in.store, in.dir)
	if err != nil {
		return err
	}
	a.found = found
	failpoint.Hit("restore-runner/inherited-files")
	if err := a.beginCommit(ctx); err != nil {
		return err
	}
	return a.finish(ctx, inherited(a.restore, a.cfg.Clock.Now(), a.found, nil))
}

// complete completes the files of the restore.
func (a *attempt) complete(ctx context.Context, store objectstore.Store, dir string) (found *leftover.Outcome, err error) {
	files := leftover.Restore(a.restore)
	files.Store, files.Dir, files.Source, files.Now, files.Confirm = store, dir, "holdfast/restore-runner", a.cfg.Clock.Now().UTC(), a.held.Confirm
	files.Notes = []joblog.Entry{{Level: joblog.Warning, Message: fmt.Sprintf("another server left the restore in phase %s: "+
		"reclaim policies and labels of restored volumes were not looked at, and hooks not waited for", a.restore.Status.Phase)}}
	found, err = retried(ctx, a.stores(), "read the operations of the restore", func() (*leftover.Outcome, error) { return files.Look(ctx) })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	_, err = retried(ctx, a.stores(), "complete the files of the restore", func() (struct{}, error) {
		err := files.Publish(ctx, found)
		if errors.Is(err, leftover.ErrLeft) {
			a.log.WarnContext(ctx, "results of the restore do not tell what was found while it was finalized", "error", err)
			err = nil
		}
		return struct{}{}, err
	})
	return found, err
}

// inherited is how a restore of another server ends, with the counts that it has and what was found
// while its files were completed, nil for nothing. A failure does not take back what was restored; a
// request to stop does, as far as the phase goes.
func inherited(restore *velerov1.Restore, now time.Time, found *leftover.Outcome, failure *fatalError) *outcome.Finished {
	s := &restore.Status
	end := &outcome.Finished{Phase: velerov1.RestorePhaseCompleted, Time: now.UnixMilli()}
	end.Counts.Warnings, end.Counts.Errors = s.Warnings, s.Errors
	if s.Progress != nil {
		end.Counts.Total, end.Counts.Done = s.Progress.TotalItems, s.Progress.ItemsRestored
	}
	if s.HookStatus != nil {
		end.Counts.Hooks, end.Counts.HooksFailed = s.HookStatus.HooksAttempted, s.HookStatus.HooksFailed
	}
	if found != nil {
		found.Count(&end.Counts.Errors, &end.Counts.Warnings)
	}
	if s.Phase == velerov1.RestorePhaseFinalizingPartiallyFailed || found != nil && found.Errors > 0 {
		end.Phase = velerov1.RestorePhasePartiallyFailed
	}
	switch {
	case failure == nil:
	case cancelled(failure) != nil:
		end.Phase, end.Reason, end.Cancelled = velerov1.RestorePhaseFailed, failure.Error(), true
	default:
		end.Phase, end.Reason = velerov1.RestorePhasePartiallyFailed, failure.Error()
		end.Counts.Errors++
	}
	return end
}
