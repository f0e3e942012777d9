package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/ending"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/journal"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finish"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/steady"
)

// run carries the claimed backup to its end. An error means that the end was not
// reached: the claim was lost, the process stops, or the API is away.
func (j *execution) run(ctx context.Context) error {
	// A takeover comes without a message: the trace is the one noted on the backup.
	ctx, span := j.Tracer.Start(fabric.WithTrace(ctx, j.backup), "backup", trace.WithAttributes(
		attribute.String("holdfast.object.name", j.backup.Name), attribute.String("holdfast.object.uid", string(j.backup.UID)),
		attribute.Int64("holdfast.claim.epoch", j.mine.Epoch),
	))
	defer span.End()
	dir, err := j.workDir()
	if err != nil {
		return err
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			j.log.WarnContext(ctx, "work files left behind", "dir", dir, "error", err)
		}
	}()
	store, err := j.openCancellable(ctx)
	var bad *failedError
	if errors.As(err, &bad) {
		return j.end(ctx, bad.reason)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err := store.Close(); err != nil {
			j.log.WarnContext(ctx, "bucket not closed", "error", err)
		}
	}()
	return j.withStore(ctx, store, dir)
}

// withStore decides the end in the bucket, then copies it to the object.
func (j *execution) withStore(ctx context.Context, store objectstore.Store, dir string) error {
	cluster, err := j.clusterUID(ctx)
	if err != nil {
		return err
	}
	out := &finish.Job{Backup: j.backup.DeepCopy(), Cluster: cluster, Store: store, Dir: dir, Clock: j.Clock, Log: j.log}
	final, published, err := j.decide(ctx, out)
	var bad *failedError
	if errors.As(err, &bad) {
		return j.settle(ctx, j.failed(bad.reason), published)
	}
	if err != nil {
		return err
	}
	if err := j.sweep(ctx, out, final); err != nil {
		return err
	}
	return j.settle(ctx, final, published)
}

// sweep removes the parts of the committed backup. Those of one that failed are all
// that was stored, and stay if a plugin has to see it before it goes.
func (j *execution) sweep(ctx context.Context, out *finish.Job, final *velerov1.Backup) error {
	if final.Status.Phase == velerov1.BackupPhaseFailed && j.KeepFailed != nil && j.KeepFailed() {
		return nil
	}
	err := out.Sweep(ctx)
	if err != nil && ctx.Err() == nil {
		j.log.WarnContext(ctx, "parts left behind", "error", err)
		err = nil
	}
	return err
}

// failedError ends the backup as Failed without a word in the bucket: the name
// there is not this backup's, or the bucket cannot be written.
type failedError struct{ reason string }

func (e *failedError) Error() string { return e.reason }

// unopenedError is a location that does not open now. It hides its cause, which
// would be tried again.
type unopenedError struct {
	name string
	err  error
}

func (e *unopenedError) Error() string {
	return fmt.Sprintf("BackupStorageLocation %q: %v", e.name, e.err)
}

// decide reaches the commit and returns what was committed.
func (j *execution) decide(ctx context.Context, out *finish.Job) (*velerov1.Backup, finish.Published, error) {
	var none finish.Published
	committed, found, err := ending.Committed(ctx, out.Store, j.backup)
	if err != nil {
		return nil, none, j.storeError(ctx, err)
	}
	switch {
	case found && !committed.Status.Phase.Terminal():
		final, err := j.inherit(ctx, out, committed)
		if err != nil {
			err = j.storeError(ctx, err)
		}
		return final, none, err
	case found:
		return committed, none, nil
	case finalizing(j.claimed.Status.Phase):
		return nil, none, &failedError{reason: fmt.Sprintf("another server left the backup in phase %s, and the bucket holds no %s", j.claimed.Status.Phase, layout.BackupMetadata(j.backup.Name))}
	}
	if err := j.reserve(ctx, out); err != nil {
		return nil, none, j.storeError(ctx, err)
	}
	j.reserved = true
	published, err := j.work(ctx, out)
	if err == nil {
		committed, err = j.complete(ctx, out, published)
	}
	if err == nil || stopped(ctx, err) {
		return committed, published, err
	}
	committed, failErr := j.giveUp(ctx, out, err)
	if errors.Is(failErr, errComposed) {
		return j.decide(ctx, out)
	}
	if failErr != nil {
		// Only the bucket's answer is judged: it says whether the file may be there.
		return nil, none, j.storeError(ctx, fmt.Errorf("write the failure %q to the bucket: %w", err.Error(), failErr))
	}
	return committed, published, nil
}

// complete commits what was published.
func (j *execution) complete(ctx context.Context, out *finish.Job, published finish.Published) (*velerov1.Backup, error) {
	phase := velerov1.BackupPhaseCompleted
	if published.Errors > 0 {
		phase = velerov1.BackupPhasePartiallyFailed
	}
	failpoint.Hit("backup-runner/before-commit")
	if err := j.mark(ctx); err != nil {
		return nil, err
	}
	return out.Complete(ctx, phase, published)
}

// work collects, unless the composition is fixed already, and publishes. A
// verdict that was reached before is returned as *condemnedError, a request to
// stop as *cancel.Error.
func (j *execution) work(ctx context.Context, out *finish.Job) (finish.Published, error) {
	if j.broken {
		return finish.Published{}, errInternal
	}
	working, release := j.cancellable(ctx)
	defer release()
	published, err := j.produce(working, out)
	var known *condemnedError
	if asked := j.calledOff(); asked != nil && err != nil && !errors.As(err, &known) && !stopped(ctx, err) {
		err = asked
	}
	return published, err
}

func (j *execution) produce(ctx context.Context, out *finish.Job) (finish.Published, error) {
	c, err := j.composition(ctx, out)
	if err != nil {
		return finish.Published{}, err
	}
	j.composed = true
	failpoint.Hit("backup-runner/composition-fixed")
	if err := j.confirm(ctx); err != nil {
		return finish.Published{}, err
	}
	ctx, span := j.Tracer.Start(ctx, "publish")
	defer span.End()
	return out.Publish(ctx, c)
}

// stopped reports whether an error is no verdict on the backup: the process
// stops, or another holder goes on.
func stopped(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, journal.ErrFenced) || errors.Is(err, claim.ErrLost)
}

// storeError turns a bucket that fails for good into a verdict. Once the backup
// may have been committed, only a bucket that refuses is one: an answer that got
// lost may have been a success, and whoever claims the backup next reads it.
func (j *execution) storeError(ctx context.Context, err error) error {
	switch {
	case stopped(ctx, err):
		return err
	case errors.Is(err, ending.ErrForeign):
		return &failedError{reason: ending.ErrForeign.Error()}
	case j.reserved && !steady.Refused(err):
		return &unreachableError{err}
	}
	return &failedError{reason: err.Error()}
}

// openCancellable is open that a request to stop cuts short, as long as nothing in
// the bucket can be this backup's.
func (j *execution) openCancellable(ctx context.Context) (objectstore.Store, error) {
	if j.reserved {
		return j.open(ctx)
	}
	opening, release := j.cancellable(ctx)
	defer release()
	store, err := j.open(opening)
	if asked := j.calledOff(); asked != nil && err != nil && !stopped(ctx, err) {
		err = &failedError{reason: asked.Error()}
	}
	return store, err
}

// open returns the patient store of the backup's location.
func (j *execution) open(ctx context.Context) (objectstore.Store, error) {
	name := j.backup.Spec.StorageLocation
	var store objectstore.Store
	started := j.Clock.Now()
	err := j.retry(ctx, "open the location", func() error {
		bsl, err := j.Locations.Get(ctx, name)
		if apierrors.IsNotFound(err) {
			return &failedError{reason: fmt.Sprintf("spec.storageLocation: BackupStorageLocation %q not found", name)}
		}
		if err != nil {
			return err
		}
		store, err = j.Locations.Open(ctx, bsl)
		if err == nil || ctx.Err() != nil {
			return err
		}
		// What looks like the network may be for ever: a wrong name, an unknown certificate.
		patient := kube.IsTransient(err) && j.Clock.Since(started) <= j.StorePatience
		switch {
		case patient:
			return err
		case j.reserved: // the bucket may hold the end of the backup
			return &unreachableError{&unopenedError{name: name, err: err}}
		}
		return &failedError{reason: fmt.Sprintf("BackupStorageLocation %q: %v", name, err)}
	})
	if err != nil {
		return nil, err
	}
	return &steady.Store{Store: store, Clock: j.Clock, Log: j.log, Patience: j.StorePatience, Confirm: j.confirm}, nil
}

// workDir makes the job's directory, empty.
func (j *execution) workDir() (string, error) {
	dir := filepath.Join(j.WorkDir, fmt.Sprintf("backup-%s-%d", j.backup.UID, j.mine.Epoch))
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("prepare the work dir: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("prepare the work dir: %w", err)
	}
	return dir, nil
}
