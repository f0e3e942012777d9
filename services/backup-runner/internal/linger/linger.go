// Package linger lets work that was told to stop come to a good end first.
package linger

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Until returns a context that ends with ctx, or with that cause once limit has
// passed since stop was closed; a nil stop never is. The caller calls done.
func Until(ctx context.Context, clk clock.WithTicker, stop <-chan struct{}, limit time.Duration, cause error) (lingering context.Context, done func()) {
	lingering, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-lingering.Done():
			return
		case <-stop:
		}
		timer := clk.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-lingering.Done():
		case <-timer.C():
			cancel(cause)
		}
	})
	return lingering, func() {
		cancel(context.Canceled)
		group.Wait()
	}
}
