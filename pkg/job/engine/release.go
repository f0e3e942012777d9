package engine

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// releaseLimit bounds the release of a claim.
const releaseLimit = 5 * time.Second

// Release gives the claim up, so that any instance may resume at once, in one write with what
// mutate does, which may be nil. A job that ended keeps its claim. Calls that fail because the API
// server is away are repeated for five seconds. Nothing may be done for the job after that,
// whatever it returns: the answer to the write may have been lost.
func (h *Held[T]) Release(ctx context.Context, mutate func(T) error) error {
	_, err := h.releaseClaim(ctx, mutate, false)
	return err
}

// releaseClaim is Release. It also reports whether the claim is given up: that of a job that ended is not.
// The claim keeps how many attempts panicked since the last progress.
func (h *Held[T]) releaseClaim(ctx context.Context, mutate func(T) error, panicked bool) (released bool, err error) {
	free := claim.Claim{Epoch: h.Claim.Epoch, Panics: h.Claim.Panics}
	if h.progressed.Load() {
		free.Panics = 0
	}
	if panicked {
		free.Panics++
	}
	h.over.Store(true)
	e := h.engine
	loop := e.retryLoop()
	loop.Budget = releaseLimit
	sent := mutate == nil // nothing is to be written beside the release
	write := mutateUnderClaim(h.Claim, func(o T) error {
		if e.cfg.Kind.Terminal(o) {
			return kube.ErrSkip
		}
		if mutate != nil {
			if err := mutate(o); err != nil {
				return err
			}
		}
		sent, released = true, true
		return claim.Set(o, free)
	})
	err = loop.Do(ctx, "release the claim", func() error {
		_, err := updateCopy(ctx, e.cfg.Reader, e.cfg.Client, h.Object, func(o T) error {
			if released = sent && isReleased(o, free); released {
				return kube.ErrSkip
			}
			return write(o)
		})
		return err
	})
	return released && err == nil, err
}

// isReleased reports that the holder gave the claim up, in a write whose answer was lost, and that
// no other has taken it.
func isReleased(o client.Object, free claim.Claim) bool {
	c, found, err := claim.Parse(o)
	return err == nil && found && c == free
}

// releaseClaim empties the claim, so that any instance may resume at once. It is the last thing done
// with the job here.
func (e *Engine[T]) releaseClaim(ctx context.Context, h *Held[T], panicked bool) {
	failpoint.HitIn(e.cfg.Service, "before-hand-over")
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer stop()
	switch released, err := h.releaseClaim(ctx, nil, panicked); {
	case errors.Is(err, claim.ErrLost):
		h.Log.DebugContext(ctx, "Another instance holds the claim; nothing to release", "error", err)
	case err != nil:
		h.Log.WarnContext(ctx, "Failed to release claim; other instances wait until the Lease of this instance expires", "error", err)
	case !released:
		h.Log.DebugContext(ctx, "Job has ended; nothing to release")
	default:
		failpoint.HitIn(e.cfg.Service, "handed-over")
		h.Log.InfoContext(ctx, "Released job")
	}
}
