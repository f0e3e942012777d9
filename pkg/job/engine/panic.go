package engine

import (
	"context"
	"fmt"
	"runtime/debug"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PanicHandler is a Kind that ends jobs whose admission panics. Another kind's are admitted again
// with pauses that grow to an hour.
type PanicHandler[T client.Object] interface {
	// AdmitPanicked decides in the place of Admit about an object about which Admit, or Claimed of
	// its job, panicked five times in a row in this process. The same holds for a job whose
	// Panicked panicked.
	AdmitPanicked(obj T) Decision[T]
}

// panicError is a panic of a job.
type panicError struct{ value any }

// Error implements error.
func (p *panicError) Error() string { return "internal error" }

// text identifies a panic, to compare it with others.
func (p *panicError) text() string { return fmt.Sprint(p.value) }

// panicked logs a panic where it happened; one that repeats itself without the stack.
func (e *Engine[T]) panicked(ctx context.Context, job item, value any) error {
	err := &panicError{value}
	n, last := e.tracker.panics(job.uid)
	args := []any{"kind", e.cfg.ObjectKind, "name", job.name, "panic", err.text(), "panics", n + 1}
	if n == 0 || last != err.text() {
		args = append(args, "stack", string(debug.Stack()))
	}
	e.cfg.Log.ErrorContext(ctx, "job panicked", args...)
	return err
}

// admit is the decision about an object that no process holds.
func (e *Engine[T]) admit(ctx context.Context, obj T) (Decision[T], error) {
	if n, _ := e.tracker.panics(obj.GetUID()); n >= panicLimit {
		if handler, ok := e.cfg.Kind.(PanicHandler[T]); ok {
			return handler.AdmitPanicked(obj), nil
		}
	}
	return e.cfg.Kind.Admit(ctx, obj)
}
