package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
)

// ErrStopped is the cause of the end of a job's context when the process stops and the grace period
// is over.
var ErrStopped = errors.New("the process stops")

// holdClaim runs a claimed job as long as the claim holds.
func (e *Engine[T]) holdClaim(ctx context.Context, h *Held[T], job Job[T], work *activity) (err error) {
	lasting, end := WithGrace(ctx, e.cfg.Clock, e.cfg.Grace, ErrStopped)
	defer end()
	lasting, endSpan := h.traceAttempt(lasting)
	defer func() { endSpan(err) }()
	h.stopping, h.leave = ctx, sync.OnceFunc(func() { work.leave(); close(work.placeless) })
	h.cancelled, h.cancel = context.WithCancelCause(lasting)
	defer h.cancel(context.Canceled)
	guarded, release := e.cfg.Instance.Guard(lasting, h.Object, h.stateObserver())
	defer release()
	owned, lose := context.WithCancelCause(guarded)
	defer lose(context.Canceled)
	h.lose = lose
	e.tracker.noteClaim(work, h.Claim.Epoch, func(cause error) { h.over.Store(true); lose(cause) })
	h.observeCancel(h.Object) // an earlier holder may have been asked
	err = panics.Catch(func() error { return job.Run(owned, h) })
	panicked, err := e.checkPanic(ctx, item{name: h.Object.GetName(), uid: h.Object.GetUID()}, err)
	h.over.Store(true)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, claim.ErrLost), errors.Is(context.Cause(owned), claim.ErrLost):
		h.Log.WarnContext(ctx, "Lost claim; job stopped", "error", err, "cause", context.Cause(owned))
		return nil // its new holder continues
	}
	e.releaseClaim(ctx, h, panicked)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
