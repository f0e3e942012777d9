package job

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// stopGrace is how long objects in flight, or the end of a restore, may take once the process was told to stop.
const stopGrace = 5 * time.Second

// outlive returns a context that ends that long after ctx does. The function releases it.
func outlive(ctx context.Context, clk clock.WithTicker, grace time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := clk.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C():
			cancel(context.Cause(ctx))
		case <-out.Done():
		}
	})
	return out, func() {
		stop()
		cancel(context.Canceled)
	}
}

// untilEnd returns a context that ends with ctx, and at once when the other one does: for work that leaves nothing behind.
func untilEnd(ctx, other context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return out, func() {
		stop()
		cancel(context.Canceled)
	}
}
