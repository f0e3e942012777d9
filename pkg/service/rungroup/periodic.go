package rungroup

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Signal wakes a Run. It is safe for concurrent use; make it with NewSignal. A nil Signal never
// wakes.
type Signal chan struct{}

// NewSignal returns a Signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Wake requests a pass soon; two requests before it are one. It never blocks.
func (s Signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// RunPeriodically calls pass until ctx ends, and returns nil then. A pass that takes longer than the period is
// followed by the next one at once. One that reports failures logs them itself.
func RunPeriodically(ctx context.Context, c clock.WithTicker, period time.Duration, woken Signal, pass func(ctx context.Context)) error {
	ticker := c.NewTicker(period)
	defer ticker.Stop()
	for {
		pass(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-woken:
		}
	}
}
