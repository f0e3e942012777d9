// Package rungroup runs the parts of a process together: the first that fails stops the others, a
// panic is a failure and not the end of the process, and the end of each part is waited for. A part may be
// passes that are repeated (RunPeriodically).
//
// golang.org/x/sync/errgroup would wait for a part that does not end for as long as it takes,
// without its name, and end the process where one panics. Speed does not decide here: a process has
// a dozen parts, which live as long as it.
package rungroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrStuck is returned by Run when parts have not ended within the grace period; the message names
// them.
var ErrStuck = errors.New("parts did not stop in time")

// PanicError is the failure of a part that panicked.
type PanicError struct {
	// Value is what the part panicked with.
	Value any
	// Stack is the part's stack at that moment.
	Stack []byte
}

// Error gives the value without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Config describes a group.
type Config struct {
	// Grace is how long Run waits for parts after the context ended; 0 means without limit.
	Grace time.Duration
	// Clock measures Grace. It is required when Grace is not 0.
	Clock clock.Clock
	// Log gets the stacks of panics; nil means they are only in the returned error.
	Log *slog.Logger
}

// Group is a set of parts that live and end together. It is safe for concurrent use.
type Group struct {
	cfg Config

	mu      sync.Mutex
	parts   []groupPart     // added before Run
	ctx     context.Context // of running parts; nil before Run
	cancel  context.CancelCauseFunc
	running map[int]string
	next    int
	errs    []error
	idle    chan struct{} // closed when Run was called and no part runs any more
	closed  bool          // idle is closed: later parts are not started
}

type groupPart struct {
	name string
	run  func(context.Context) error
}

// New returns an empty group.
func New(cfg Config) *Group {
	return &Group{cfg: cfg, running: map[int]string{}, idle: make(chan struct{})}
}

// Go adds a part. Before Run it waits for Run, during Run it starts at once, after the group has
// ended it is dropped. run must return soon after its context ends. Returning nil earlier means
// that this part is done, whatever the others do.
func (g *Group) Go(name string, run func(ctx context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx == nil {
		g.parts = append(g.parts, groupPart{name, run})
		return
	}
	if !g.closed {
		g.startPart(groupPart{name, run})
	}
}

// Run runs the parts until ctx ends, one fails, or all are done, then ends the others' context and
// waits for them. It returns the failures joined, each prefixed with its part's name; the end of
// ctx is none. It is called once.
func (g *Group) Run(ctx context.Context) error {
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.mu.Lock()
	g.ctx, g.cancel = runCtx, cancel
	for _, p := range g.parts {
		g.startPart(p)
	}
	g.parts = nil
	g.closeIfIdle()
	g.mu.Unlock()

	select {
	case <-g.idle:
	case <-runCtx.Done():
		g.waitIdle()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return errors.Join(g.errs...)
}

// startPart runs p. The caller holds the lock.
func (g *Group) startPart(p groupPart) {
	id := g.next
	g.next++
	g.running[id] = p.name
	ctx := g.ctx
	go func() { g.partEnded(id, p.name, g.runProtected(ctx, p)) }()
}

// runProtected turns a panic of the part into an error.
func (g *Group) runProtected(ctx context.Context, p groupPart) (err error) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			if g.cfg.Log != nil {
				g.cfg.Log.Error("Part panicked", "part", p.name, "panic", v, "stack", string(stack))
			}
			err = &PanicError{Value: v, Stack: stack}
		}
	}()
	return p.run(ctx)
}

func (g *Group) partEnded(id int, name string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, id)
	stopping := g.ctx.Err() != nil
	if err != nil && (!stopping || !isContextEnd(g.ctx, err)) {
		err = fmt.Errorf("%s: %w", name, err)
		g.errs = append(g.errs, err)
		g.cancel(err)
	}
	g.closeIfIdle()
}

// isContextEnd reports whether err is only that ctx has ended.
func isContextEnd(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))
}

func (g *Group) closeIfIdle() {
	if len(g.running) == 0 && !g.closed {
		g.closed = true
		close(g.idle)
	}
}

// waitIdle waits for the parts to end, for at most the grace period.
func (g *Group) waitIdle() {
	if g.cfg.Grace <= 0 {
		<-g.idle
		return
	}
	timer := g.cfg.Clock.NewTimer(g.cfg.Grace)
	defer timer.Stop()
	select {
	case <-g.idle:
	case <-timer.C():
		g.reportStuckParts()
	}
}

func (g *Group) reportStuckParts() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.running) == 0 {
		return
	}
	names := make([]string, 0, len(g.running))
	for _, name := range g.running {
		names = append(names, name)
	}
	slices.Sort(names)
	g.errs = append(g.errs, fmt.Errorf("%w: %s", ErrStuck, strings.Join(names, ", ")))
}
