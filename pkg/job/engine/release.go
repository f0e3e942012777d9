package engine

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// releaseLimit bounds the last write of a job that did not end.
const releaseLimit = 5 * time.Second

// Release gives the claim up, so that any instance may go on at once, in one write with what mutate
// does, which may be nil. A job that ended keeps its claim. Nothing may be done for the job after
// that, whatever it returns: the answer to the write may have been lost.
func (h *Held[T]) Release(ctx context.Context, mutate func(T) error) error {
	h.over.Store(true)
	_, err := h.Update(ctx, func(o T) error {
		if h.engine.cfg.Kind.Terminal(o) {
			return kube.ErrSkip
		}
		if mutate != nil {
			if err := mutate(o); err != nil {
				return err
			}
		}
		return claim.Release(o)
	})
	return err
}

// release empties the claim, so that any instance may go on at once. It is the last thing done with
// the job here.
func (e *Engine[T]) release(ctx context.Context, h *Held[T]) {
	failpoint.HitIn(e.cfg.Service, "before-hand-over")
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer stop()
	switch err := h.Release(ctx, nil); {
	case errors.Is(err, claim.ErrLost):
		h.Log.DebugContext(ctx, "claim not released, it is another's", "error", err)
	case err != nil:
		h.Log.WarnContext(ctx, "claim not released, it will expire", "error", err)
	default:
		failpoint.HitIn(e.cfg.Service, "handed-over")
		h.Log.InfoContext(ctx, "job released")
	}
}
