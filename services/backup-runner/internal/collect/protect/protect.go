// Package protect keeps a defect in the code of a worker from ending the process: it costs the job
// alone.
package protect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
)

// ErrPanic is the error of a panic.
var ErrPanic = errors.New("internal error")

// Call turns a panic of fn into an error that wraps ErrPanic; log gets its stack.
func Call(log *slog.Logger, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("worker panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", ErrPanic, p)
		}
	}()
	return fn()
}

// Each calls fn for every worker at once and returns the first error, once all calls have returned;
// ctx ends for the others at that error.
func Each[W any](ctx context.Context, log *slog.Logger, workers []W, fn func(context.Context, W) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range workers {
		group.Go(func() error { return Call(log, func() error { return fn(ctx, w) }) })
	}
	return group.Wait()
}
