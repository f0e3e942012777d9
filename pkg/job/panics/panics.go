// Package panics carries a panic from the goroutine in which it happens to the goroutine that waits
// for it, and so up to the engine, which recovers it, releases the job and counts the attempt.
package panics

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Error is a panic as an error.
type Error struct {
	Value any
	Stack []byte // of the goroutine in which it happened
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Catch returns the error of fn, or an *Error if fn panics. A panic that Raise carried keeps its
// first stack.
func Catch(fn func() error) (err error) {
	defer func() {
		switch value := recover().(type) {
		case nil:
		case *Error:
			err = value
		default:
			err = &Error{Value: value, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// Raise panics if err wraps an *Error, and returns err otherwise.
func Raise(err error) error {
	var carried *Error
	if errors.As(err, &carried) {
		panic(carried) //nolint:forbidigo // the panic happened in a goroutine that nothing waits for but the caller
	}
	return err
}

// Group is an errgroup.Group whose Wait panics if one of its goroutines did. The zero value has no
// limit and no context.
type Group struct {
	group errgroup.Group
	end   context.CancelCauseFunc

	mu       sync.Mutex
	err      error  // the first one, recorded before the context ends: what the end makes others return comes after it
	panicked *Error // the first panic
}

// NewGroup returns a group and a context that ends with the first error or panic, and with Wait.
func NewGroup(ctx context.Context) (*Group, context.Context) {
	ctx, end := context.WithCancelCause(ctx)
	return &Group{end: end}, ctx
}

// SetLimit limits how many goroutines run at once.
func (g *Group) SetLimit(n int) { g.group.SetLimit(n) }

// Go calls fn in a goroutine, once the limit allows it.
func (g *Group) Go(fn func() error) {
	g.group.Go(func() error {
		err := Catch(fn)
		if err == nil {
			return nil
		}
		g.recordError(err)
		if g.end != nil {
			g.end(err)
		}
		return err
	})
}

// recordError keeps err if it is the first error, or the first panic.
func (g *Group) recordError(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
	var panicked *Error
	if g.panicked == nil && errors.As(err, &panicked) {
		g.panicked = panicked
	}
}

// Wait waits for all goroutines. It panics with the first panic, or returns the first error.
func (g *Group) Wait() error {
	_ = g.group.Wait() // recorded by each goroutine
	if g.end != nil {
		g.end(g.err)
	}
	if g.panicked != nil {
		return Raise(g.panicked)
	}
	return g.err
}

// ForEach calls fn with every number below n, at most limit at once, and returns the first error,
// which ends the context of the others. It panics if a call did.
func ForEach(ctx context.Context, limit, n int, fn func(ctx context.Context, i int) error) error {
	group, ctx := NewGroup(ctx)
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() error { return fn(ctx, i) })
	}
	return group.Wait()
}
