package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// handOverLimit bounds the last write of a job that is interrupted.
const handOverLimit = 5 * time.Second

// fatalError ends a restore as Failed; its text is the failureReason.
type fatalError struct{ err error }

// Error implements error.
func (e *fatalError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *fatalError) Unwrap() error { return e.err }

func fatal(format string, args ...any) error { return &fatalError{fmt.Errorf(format, args...)} }

// work runs a restore that was taken, up to its terminal phase. When ctx ends nothing new is begun; what is in flight has
// stopGrace to end before the restore is handed over.
func (r *Runner) work(ctx context.Context, restore *velerov1.Restore, mine claim.Claim) error {
	failpoint.Hit("restore-runner/taken")
	log := r.cfg.Log.With("restore", restore.Name, "epoch", mine.Epoch)
	log.Info("restore taken", "backup", restore.Spec.BackupName)
	hard, end := outlive(ctx, r.cfg.Clock, stopGrace)
	defer end()
	j := &job{Runner: r, restore: restore, mine: mine, log: log, process: ctx}
	defer j.cancellable(hard)()
	guarded, release := r.cfg.Claims.GuardSeeing(hard, restore, j.heed)
	defer release()
	owned, lose := context.WithCancelCause(guarded)
	defer lose(nil)
	j.lose = lose
	j.heed(restore) // an earlier holder may have been asked
	run := j.run
	if finalizing(restore.Status.Phase) {
		run = j.inherit
	}
	err := j.survive(func() error { return run(owned) })
	err = j.unlessCalledOff(owned, err)
	var failure *fatalError
	if owned.Err() == nil && errors.As(err, &failure) {
		err = j.finish(owned, j.ending(failure))
	}
	if err != nil && owned.Err() != nil && errors.Is(context.Cause(owned), claim.ErrLost) {
		err = context.Cause(owned)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, claim.ErrLost), errors.Is(err, errDeleted):
		log.Warn("restore stopped: it is no longer this runner's", "reason", err)
		return nil
	}
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), handOverLimit)
	defer stop()
	failpoint.Hit("restore-runner/before-hand-over")
	r.release(last, restore, mine)
	failpoint.Hit("restore-runner/handed-over")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// run opens everything a restore needs, restores, decides how it ends, and publishes the files.
func (j *job) run(ctx context.Context) (err error) {
	until := j.process
	if j.mine.Epoch == 1 {
		until = j.stopped // nobody has recorded anything
	}
	quick, done := untilEnd(ctx, until)
	defer done()
	backup, err := j.backup(quick)
	if err != nil {
		return err
	}
	j.schedule = backup.Labels[velerov1.LabelScheduleName]
	if j.mine.Epoch == 1 {
		j.cfg.Metrics.Begin(j.schedule)
	}
	store, err := j.open(quick, backup.Spec.StorageLocation)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	dir := filepath.Join(j.cfg.WorkDir, string(j.restore.UID))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, tarballDir), 0o700)); err != nil {
		return fatal("prepare the work directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	j.dir = dir
	defer func() {
		if j.recorder != nil {
			err = errors.Join(err, j.recorder.Close())
		}
		if j.built != nil {
			err = errors.Join(err, j.built.Close())
		}
	}()
	files, err := newFiles(dir, j.restore)
	if err != nil {
		return fatal("prepare the work directory: %w", err)
	}
	defer files.close()
	j.recorder = outcome.NewRecorder(files.log, j.cfg.Clock, j.cfg.RecordBatch, dir)
	if j.records, err = j.openRecords(quick, store, dir); err != nil {
		return err
	}
	err = j.restoring(ctx, func(ctx context.Context) error {
		if err := j.unlessDeleting(backup); err != nil {
			return err
		}
		return j.restoreFrom(ctx, store, backup.Name, dir)
	})
	if err := j.unpause(ctx, err); err != nil {
		return err
	}
	if err != nil {
		j.explain(ctx, store, files, err)
		return err
	}
	if err := j.decide(ctx, outcome.Finished{}); err != nil {
		return err
	}
	if err := j.publish(ctx, store, files); err != nil {
		return err
	}
	return j.finish(ctx, j.finished)
}

// attended runs do while progress is reported and outcomes are recorded, and waits for the last of both.
func (j *job) attended(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var group sync.WaitGroup
	beside := func(do func()) {
		group.Go(func() {
			if err := j.survive(func() error { do(); return nil }); err != nil {
				cancel(err)
			}
		})
	}
	beside(func() { j.report(ctx, done, cancel) })
	beside(func() { j.record(ctx, done, cancel) })
	err := j.survive(func() error { return do(ctx) })
	close(done)
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// backup reads the Backup that is restored from.
func (j *job) backup(ctx context.Context) (*velerov1.Backup, error) {
	if j.restore.Spec.BackupName == "" {
		return nil, fatal("spec.backupName: is empty")
	}
	backup := &velerov1.Backup{}
	if err := j.cfg.Reader.Get(ctx, client.ObjectKey{Namespace: j.cfg.Namespace, Name: j.restore.Spec.BackupName}, backup); err != nil {
		return nil, j.unlessAway(err, fmt.Sprintf("read backup %q", j.restore.Spec.BackupName))
	}
	return backup, nil
}

// unlessAway makes an error fatal, unless it only says that the API server is away now.
func (j *job) unlessAway(err error, what string) error {
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) || (!errors.As(err, &status) && !isNetwork(err)) {
		return fatal("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// unlessDeleting refuses to begin with a backup whose data is being removed. The backup was read after the claim was written, and
// a deletion looks for restores in progress after it has marked the backup: one of the two sees the other. A deletion waits for
// a restore that an earlier holder has begun, which therefore goes on.
func (j *job) unlessDeleting(backup *velerov1.Backup) error {
	begun := j.records != nil && j.records.head.Planned != nil
	if backup.Status.Phase == velerov1.BackupPhaseDeleting && !begun {
		return fatal("spec.backupName: backup %q is being deleted", backup.Name)
	}
	return nil
}
