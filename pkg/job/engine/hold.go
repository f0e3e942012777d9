package engine

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// ErrStopped is the cause of the end of a job's context when the process stops and the grace period
// is over.
var ErrStopped = errors.New("the process stops")

// hold runs a claimed job as long as the claim holds.
func (e *Engine[T]) hold(ctx context.Context, h *Held[T], job Job[T]) (err error) {
	lasting, end := Outlive(ctx, e.cfg.Clock, e.cfg.Grace, ErrStopped)
	defer end()
	lasting, endSpan := h.traced(lasting)
	defer func() { endSpan(err) }()
	h.stopping = ctx
	h.cancelled, h.cancel = context.WithCancelCause(lasting)
	defer h.cancel(context.Canceled)
	guarded, release := e.cfg.Instance.GuardSeeing(lasting, h.Object, h.seen())
	defer release()
	owned, lose := context.WithCancelCause(guarded)
	defer lose(context.Canceled)
	h.lose = lose
	h.observe(h.Object) // an earlier holder may have been asked
	err = e.attempt(owned, h, job)
	h.over.Store(true)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, claim.ErrLost), errors.Is(context.Cause(owned), claim.ErrLost):
		h.Log.WarnContext(ctx, "claim lost, job stopped", "error", err, "cause", context.Cause(owned))
		return nil // its new holder continues
	}
	e.release(ctx, h)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// attempt runs a job, and has its kind end it if that panics.
func (e *Engine[T]) attempt(ctx context.Context, h *Held[T], job Job[T]) error {
	err := e.survive(ctx, h, func() error { return job.Run(ctx, h) })
	var p *panicError
	if !errors.As(err, &p) {
		return err
	}
	return e.survive(ctx, h, func() error { return job.Panicked(ctx, h, p.value) })
}

// survive turns a panic into a *panicError.
func (e *Engine[T]) survive(ctx context.Context, h *Held[T], do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = e.panicked(ctx, item{name: h.Object.GetName(), uid: h.Object.GetUID()}, value)
		}
	}()
	return do()
}
