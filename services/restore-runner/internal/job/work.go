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
	"github.com/holdfast-io/holdfast/pkg/objectstore"
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

// work runs a restore that was taken, up to its terminal phase.
func (r *Runner) work(ctx context.Context, restore *velerov1.Restore, mine claim.Claim) error {
	log := r.cfg.Log.With("restore", restore.Name, "epoch", mine.Epoch)
	log.Info("restore taken", "backup", restore.Spec.BackupName)
	guarded, cancel := r.cfg.Claims.Guard(ctx, restore)
	defer cancel()
	j := &job{Runner: r, restore: restore, mine: mine, log: log}
	err := j.survive(func() error { return j.run(guarded) })
	var failure *fatalError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, claim.ErrLost), errors.Is(err, errDeleted):
		log.Info("restore given up", "reason", err)
		return nil
	case guarded.Err() == nil && errors.As(err, &failure):
		return j.finish(guarded, failure)
	}
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), handOverLimit)
	defer stop()
	r.release(last, restore, mine)
	return err
}

// run opens everything a restore needs, restores, and publishes the files.
func (j *job) run(ctx context.Context) (err error) {
	backup, err := j.backup(ctx)
	if err != nil {
		return err
	}
	j.schedule = backup.Labels[velerov1.LabelScheduleName]
	if j.mine.Epoch == 1 {
		j.cfg.Metrics.Begin(j.schedule)
	}
	store, err := j.open(ctx, backup.Spec.StorageLocation)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	dir := filepath.Join(j.cfg.WorkDir, string(j.restore.UID))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, tarballDir), 0o700)); err != nil {
		return fatal("prepare the work directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	files, err := newFiles(dir, j.restore)
	if err != nil {
		return fatal("prepare the work directory: %w", err)
	}
	defer files.close()
	j.recorder = outcome.NewRecorder(files.log, j.cfg.Clock)
	j.show(j.restore.UID, j.recorder)
	if err := j.attended(ctx, store, dir, func(ctx context.Context) error { return j.restoreFrom(ctx, store, backup.Name, dir) }); err != nil {
		j.explain(ctx, store, files, err)
		return err
	}
	if err := j.publish(ctx, store, files); err != nil {
		return err
	}
	return j.finish(ctx, nil)
}

// attended runs do while progress is reported and outcomes are recorded, and waits for the last of both.
func (j *job) attended(ctx context.Context, store objectstore.Store, dir string, do func(context.Context) error) error {
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
	records := &recordStore{bucket: &outcome.Bucket{Writer: store, Restore: j.restore.Name, UID: string(j.restore.UID), Epoch: j.mine.Epoch}, dir: &outcome.Dir{Path: dir}}
	beside(func() { j.record(ctx, done, records) })
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
