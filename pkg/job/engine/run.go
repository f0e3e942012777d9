package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

const (
	// retryAfter is the delay before the hint of a job that could not be begun or finished is
	// delivered again.
	retryAfter = 5 * time.Second
	// fullRetry is the delay before a hint for which no place is free here is delivered again.
	fullRetry = time.Second
)

// Handle is the handler of hints. It returns when the job ended or left its place, or another claim replaced its own.
func (e *Engine[T]) Handle(ctx context.Context, hint *workv1.Hint) messaging.Outcome {
	if hint.GetKind() != e.cfg.ObjectKind || hint.GetNamespace() != e.cfg.Namespace {
		return messaging.DeadLetter(fmt.Errorf("not a %s of namespace %s", e.cfg.ObjectKind, e.cfg.Namespace))
	}
	next := item{name: hint.GetName(), uid: types.UID(hint.GetUid())}
	work, active := e.takeFreePlace(next)
	switch {
	case active:
		return messaging.Done()
	case work == nil:
		return messaging.Retry(fullRetry, nil)
	}
	ended := make(chan error, 1)
	e.group.Go(func() { ended <- e.workInPlace(ctx, work, next) })
	select {
	case <-work.abandoned:
		return messaging.Done()
	case <-work.placeless:
		return messaging.Done() // as of a job with a live holder
	case err := <-ended:
		return e.hintOutcome(ctx, err)
	}
}

// hintOutcome is what becomes of a hint. One whose job has a live holder is done: the expiry of that
// holder is observed without it.
func (e *Engine[T]) hintOutcome(ctx context.Context, err error) messaging.Outcome {
	var held *claim.HeldError
	switch {
	case err == nil, errors.As(err, &held):
		return messaging.Done()
	case ctx.Err() != nil:
		return messaging.Retry(0, nil) // released
	}
	return messaging.Retry(retryAfter, err)
}

// runQueuedJobs works on the jobs of the workqueue, as far as there are places, until ctx ends.
func (e *Engine[T]) runQueuedJobs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-e.queue.items:
			work, err := e.enterPlace(ctx, next)
			e.queue.removeJob(next)
			if err != nil {
				return
			}
			if work != nil {
				e.group.Go(func() { e.runUnannounced(ctx, work, next) })
			}
		}
	}
}

func (e *Engine[T]) runUnannounced(ctx context.Context, work *activity, next item) {
	var held *claim.HeldError
	if err := e.workInPlace(ctx, work, next); err != nil && !errors.As(err, &held) && ctx.Err() == nil {
		e.cfg.Log.WarnContext(ctx, "Failed to run job; the next reconcile retries it", "kind", e.cfg.ObjectKind, "name", next.name, "error", err)
	}
}

// Run works on the job of that name and UID until it ended, once there is a place. Nil means that
// nothing is left to do here now, *claim.HeldError that a live instance holds it; after any other
// error it has to be tried again.
func (e *Engine[T]) Run(ctx context.Context, name string, uid types.UID) error {
	next := item{name: name, uid: uid}
	work, err := e.acquirePlace(ctx, next)
	if err != nil || work == nil {
		return err
	}
	return e.workInPlace(ctx, work, next)
}

// workInPlace is Run for a job that was entered; it leaves its place.
func (e *Engine[T]) workInPlace(ctx context.Context, work *activity, next item) (err error) {
	defer work.leave()
	defer func() { e.tracker.finishJob(next.uid, work, err) }()
	held, job, err := e.claimJob(ctx, next)
	if err != nil || job == nil {
		return err
	}
	return e.holdClaim(ctx, held, job, work)
}
