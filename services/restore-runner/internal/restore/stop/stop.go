// Package stop is how a restore is asked to end early.
package stop

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
)

// Signal is closed when no further object is to be begun. Nil never is.
type Signal <-chan struct{}

// Requested reports that no further object is to be begun.
func (s Signal) Requested() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

// Context returns a context that ends with ctx, and with dispatch.ErrStopped when the restore is to
// stop. done has to be called.
func (s Signal) Context(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s:
			cancel(dispatch.ErrStopped)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Ending reports that err is nothing an object did: the restore is ending here.
func Ending(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, dispatch.ErrStopped)
}
