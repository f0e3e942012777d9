package job

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/journal"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// again asks the store until it answers, for as long as a location is waited for: an outage delays a restore. It is the end of
// the restore after that, and at once when waiting changes nothing. The restore may be deleted meanwhile, which ends the wait.
func again[T any](ctx context.Context, j *job, what string, do func() (T, error)) (T, error) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 16, Cap: 15 * time.Second}
	var since time.Time // the first failure
	for {
		out, err := do()
		if err == nil || damaged(err) || errors.Is(err, claim.ErrLost) || ctx.Err() != nil {
			return out, err
		}
		if since.IsZero() {
			since = j.cfg.Clock.Now()
		}
		if final(err) || j.cfg.Clock.Since(since) > j.cfg.StorePatience {
			return out, fatal("%s: %w", what, err)
		}
		j.log.Warn("object store did not answer", "doing", what, "error", err)
		timer := j.cfg.Clock.NewTimer(backoff.Step())
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return out, err
		}
		if err := j.still(ctx); err != nil {
			return out, err
		}
	}
}

// still makes sure, after a wait, that the restore is not being deleted and is still this runner's; else the job ends.
func (j *job) still(ctx context.Context) error {
	err := j.retry(ctx, "look at the restore", func() error { return j.wanted(ctx) })
	if errors.Is(err, errDeleted) || errors.Is(err, claim.ErrLost) || errors.Is(err, kube.ErrReplaced) {
		j.lose(err)
	}
	return err
}

// finals are the failures of a store that last, however often it is asked.
var finals = []error{
	objectstore.ErrNotFound, objectstore.ErrNoBucket, objectstore.ErrAccess, objectstore.ErrReadOnly, objectstore.ErrInvalidKey,
	objectstore.ErrInvalidRange, objectstore.ErrSize, journal.ErrCorrupt,
}

func final(err error) bool {
	var verdict *fatalError
	return errors.As(err, &verdict) || slices.ContainsFunc(finals, func(f error) bool { return errors.Is(err, f) })
}
