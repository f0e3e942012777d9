package job

import (
	"context"
	"errors"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/ending"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finish"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/steady"
)

// condemnedError carries a verdict that is recorded in the bucket.
type condemnedError struct{ verdict checkpoint.Failure }

func (e *condemnedError) Error() string { return e.verdict.Reason }

// errComposed means that the backup does not fail: while this holder failed to
// collect, the composition of another was fixed, and is followed.
var errComposed = errors.New("another holder fixed the composition")

// composition returns the one that is fixed, or collects and fixes it. A backup
// that was condemned has none to publish.
func (j *execution) composition(ctx context.Context, out *finish.Job) (checkpoint.Composition, error) {
	c, err := checkpoint.Fixed(ctx, out.Store, j.backup.Name, string(j.backup.UID))
	if errors.Is(err, objectstore.ErrNotFound) {
		c, err = j.collect(ctx, out)
	}
	if err != nil {
		return c, err
	}
	if c.Failure != nil {
		return c, &condemnedError{*c.Failure}
	}
	if c.Epoch == j.mine.Epoch {
		return c, nil
	}
	// Its publication may have failed.
	verdict, err := checkpoint.Condemned(ctx, out.Store, j.backup.Name, string(j.backup.UID))
	switch {
	case err == nil:
		return c, &condemnedError{verdict}
	case errors.Is(err, objectstore.ErrNotFound):
		return c, nil
	}
	return c, err
}

// giveUp commits the backup as Failed, unless it was committed before: then the
// work failed only because its end had come already.
func (j *execution) giveUp(ctx context.Context, out *finish.Job, cause error) (*velerov1.Backup, error) {
	committed, found, err := ending.Committed(ctx, out.Store, j.backup)
	if err != nil || found {
		return committed, err
	}
	if err := j.present(ctx); err != nil {
		return nil, err
	}
	verdict, err := j.condemn(ctx, out, cause)
	if err == nil {
		err = j.present(ctx)
	}
	if err != nil {
		return nil, err
	}
	j.log.ErrorContext(ctx, "backup failed", "error", verdict.Reason)
	return out.Fail(ctx, verdict)
}

// condemn makes the verdict durable before anything tells it: a later holder
// follows it, whatever would become of the work then. It takes the place of the
// composition; if that exists and cannot be published, it gets a record of its own.
func (j *execution) condemn(ctx context.Context, out *finish.Job, cause error) (checkpoint.Failure, error) {
	var known *condemnedError
	if errors.As(cause, &known) {
		return known.verdict, nil
	}
	verdict := checkpoint.Failure{Reason: cause.Error(), Time: j.Clock.Now().UTC().Truncate(time.Millisecond)}
	name, uid := j.backup.Name, string(j.backup.UID)
	if !j.composed {
		c, err := checkpoint.Fix(ctx, out.Store, checkpoint.Composition{
			Backup: name, UID: uid, Epoch: j.mine.Epoch, Phase: velerov1.BackupPhaseFailed, Failure: &verdict,
		})
		switch {
		case err == nil && c.Failure != nil:
			return *c.Failure, nil
		case err == nil && !j.broken:
			j.composed = true
			return verdict, errComposed
		case err != nil && !errors.Is(err, checkpoint.ErrDamaged):
			return j.unrecorded(ctx, verdict, err)
		}
		// The composition stands, and this holder panicked or cannot read it.
	}
	recorded, err := checkpoint.Condemn(ctx, out.Store, name, uid, verdict)
	if err != nil {
		return j.unrecorded(ctx, verdict, err)
	}
	return recorded, nil
}

// unrecorded lets a verdict stand without a record where none can be had: the
// bucket refuses it, and so the work of any other holder, or the record is damaged.
func (j *execution) unrecorded(ctx context.Context, verdict checkpoint.Failure, err error) (checkpoint.Failure, error) {
	if !steady.Refused(err) && !errors.Is(err, checkpoint.ErrDamaged) {
		return verdict, err
	}
	j.log.WarnContext(ctx, "verdict not recorded before it is published", "error", err)
	return verdict, nil
}
