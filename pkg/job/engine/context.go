package engine

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Join returns a context that ends with ctx, or with the cause of the other one when that ends. It has
// ended at once where the other one has. The function releases it and must be called.
func Join(ctx, other context.Context) (context.Context, context.CancelFunc) {
	joined, cancel := context.WithCancelCause(ctx)
	if other.Err() != nil { // AfterFunc would end the context later, in a goroutine
		cancel(context.Cause(other))
	}
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return joined, func() {
		stop()
		cancel(context.Canceled)
	}
}

// WithGrace returns a context with the values of ctx that ends a grace period after ctx does, with
// that cause; nil means the cause of ctx. The function releases it and must be called; it waits
// until nothing runs for it any more.
func WithGrace(ctx context.Context, clk clock.WithTicker, grace time.Duration, cause error) (context.Context, context.CancelFunc) {
	return graceContext(context.WithoutCancel(ctx), clk, ctx.Done(), grace, func() error {
		if cause == nil {
			return context.Cause(ctx)
		}
		return cause
	})
}

// WithStopGrace returns a context that ends with ctx, or with that cause a grace period after stop was
// closed; a nil stop never is. The function releases it and must be called; it waits until nothing
// runs for it any more.
func WithStopGrace(ctx context.Context, clk clock.WithTicker, stop <-chan struct{}, grace time.Duration, cause error) (context.Context, context.CancelFunc) {
	return graceContext(ctx, clk, stop, grace, func() error { return cause })
}

func graceContext(
	ctx context.Context, clk clock.WithTicker, stop <-chan struct{}, grace time.Duration, cause func() error,
) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-lasting.Done():
			return
		case <-stop:
		}
		if grace > 0 {
			timer := clk.NewTimer(grace)
			defer timer.Stop()
			select {
			case <-lasting.Done():
				return
			case <-timer.C():
			}
		}
		cancel(cause())
	})
	return lasting, func() {
		cancel(context.Canceled)
		group.Wait()
	}
}
