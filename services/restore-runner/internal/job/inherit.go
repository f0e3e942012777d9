package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/finalize"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// finalizing tells of the phases in which another server left a restore whose objects it had created: this version writes the
// terminal phase under the claim of InProgress.
func finalizing(p velerov1.RestorePhase) bool {
	return p == velerov1.RestorePhaseFinalizing || p == velerov1.RestorePhaseFinalizingPartiallyFailed
}

// begun tells of the phases in which a restore may have a holder.
func begun(p velerov1.RestorePhase) bool {
	return p == velerov1.RestorePhaseInProgress || finalizing(p)
}

// open tells of the phases in which a runner may take a restore. Waiting* belongs to async-operation-monitor.
func open(p velerov1.RestorePhase) bool { return p.IsNew() || begun(p) }

// inherit ends a restore that another server left in a finalizing phase, from what its files say. Whoever does it again comes to
// the same end. A failure leaves the restore PartiallyFailed: its objects are in the cluster.
func (j *job) inherit(ctx context.Context) (err error) {
	quick, done := untilEnd(ctx, j.stopped)
	defer done()
	backup, err := j.backup(quick)
	if err != nil {
		return err
	}
	j.schedule = backup.Labels[velerov1.LabelScheduleName]
	store, err := j.open(quick, backup.Spec.StorageLocation)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	dir := filepath.Join(j.cfg.WorkDir, string(j.restore.UID))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return fatal("prepare the work directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	found, err := j.complete(quick, store, dir)
	if err != nil {
		return err
	}
	if err := j.mark(ctx); err != nil {
		return err
	}
	end := j.inherited(nil)
	end.Counts.Errors += found.Errors
	end.Counts.Warnings += found.Warnings
	if found.Errors > 0 {
		end.Phase = velerov1.RestorePhasePartiallyFailed
	}
	return j.finish(ctx, end)
}

// complete completes the files of the restore.
func (j *job) complete(ctx context.Context, store objectstore.Store, dir string) (found *finalize.Outcome, err error) {
	name := j.restore.Name
	files := &finalize.Job{
		Store: store, Dir: dir, Operations: layout.RestoreItemOperations(name), Results: layout.RestoreResults(name), Log: layout.RestoreLog(name),
		Field: "restore", Value: j.restore.Namespace + "/" + name, Source: "holdfast/restore-runner", Message: plain,
		Now: j.cfg.Clock.Now().UTC(), Confirm: j.confirm,
		Notes: []joblog.Entry{{Level: joblog.Warning, Message: fmt.Sprintf("another server left the restore in phase %s: "+
			"reclaim policies and labels of restored volumes were not looked at, and hooks not waited for", j.restore.Status.Phase)}},
	}
	found, err = again(ctx, j, "read the operations of the restore", func() (*finalize.Outcome, error) { return files.Look(ctx) })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	_, err = again(ctx, j, "complete the files of the restore", func() (struct{}, error) {
		err := files.Publish(ctx, found)
		if errors.Is(err, finalize.ErrLeft) {
			j.log.Warn("results of the restore do not tell what was found while it was finalized", "error", err)
			err = nil
		}
		return struct{}{}, err
	})
	return found, err
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

// inherited is how a restore of another server ends, with the counts that it has. A failure does not take back what was
// restored; a request to stop does, as far as the phase goes.
func (j *job) inherited(failure *fatalError) *outcome.Finished {
	s := &j.restore.Status
	end := &outcome.Finished{Phase: velerov1.RestorePhaseCompleted, Time: j.cfg.Clock.Now().UnixMilli()}
	end.Counts.Warnings, end.Counts.Errors = s.Warnings, s.Errors
	if s.Progress != nil {
		end.Counts.Total, end.Counts.Done = s.Progress.TotalItems, s.Progress.ItemsRestored
	}
	if s.Phase == velerov1.RestorePhaseFinalizingPartiallyFailed {
		end.Phase = velerov1.RestorePhasePartiallyFailed
	}
	switch {
	case failure == nil:
	case asked(failure) != nil:
		end.Phase, end.Reason, end.Cancelled = velerov1.RestorePhaseFailed, failure.Error(), true
	default:
		end.Phase, end.Reason = velerov1.RestorePhasePartiallyFailed, failure.Error()
		end.Counts.Errors++
	}
	return end
}
