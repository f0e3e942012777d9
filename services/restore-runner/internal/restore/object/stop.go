package object

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
)

// StopSignal is closed when no further object is to be begun. Nil never is.
type StopSignal <-chan struct{}

// Requested reports that no further object is to be begun.
func (s StopSignal) Requested() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

// Context returns a context that ends with ctx, and with dispatch.ErrStopped when the restore is to
// stop. done has to be called.
func (s StopSignal) Context(ctx context.Context) (_ context.Context, done func()) {
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

// IsEnding reports that err is nothing an object did: the restore is ending here.
func IsEnding(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, dispatch.ErrStopped)
}
