package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// worker keeps one process of a binary at work: it starts it at the first call, replaces it when it
// was lost, and fails calls for a while when that happens too often in a row.
type worker struct {
	ctx    context.Context // of the session; its end interrupts starts
	cancel context.CancelFunc
	spec   *spec

	mu      sync.Mutex
	current *process // takes new calls; nil when none runs
	attempt *attempt // a start under way
	live    map[*process]struct{}
	ending  sync.WaitGroup // processes that are being ended
	closed  bool

	key      string // what the deaths of its processes are counted under
	backoffs *backoffs

	isolating chan struct{} // holds one token, of the call that has a process of its own

	shared bool                          // by all jobs, see home.go
	homes  map[action.Operation]*process // operations that live in a process; nil if not shared
}

// attempt is a start that any number of calls wait for.
type attempt struct {
	done chan struct{}
	err  error
}

// newWorker returns a worker that shares no backoffs.
func newWorker(ctx context.Context, s *spec) *worker {
	ctx, cancel := context.WithCancel(ctx)
	return &worker{ctx: ctx, cancel: cancel, spec: s, live: map[*process]struct{}{}, backoffs: newBackoffs(), isolating: make(chan struct{}, 1)}
}

// call describes one call.
type call struct {
	who
	method    string
	object    *action.Object   // what it is about; nil for nothing
	operation action.Operation // what it is about; zero for nothing
	within    time.Duration
	reads     bool // it changes nothing, so it may be made twice
}

func (c *call) fail(err error, sent bool) error {
	e := &Error{Plugin: c.name, Method: c.method, Err: err, Sent: sent}
	if c.object != nil {
		if id, err := c.object.Identity(); err == nil {
			e.Object = id.String()
		}
	}
	return e
}

// do runs fn, which makes one call on a process, and returns an *Error when it fails. A crash fails
// all calls that the process had; those that it cannot have seen, or that only read, are made once
// more: on a process of their own, which no other call can end, unless the process is one that jobs
// share and that operations live in.
func (w *worker) do(ctx context.Context, c call, fn func(ctx context.Context, p *process) error) error {
	err := w.once(ctx, c, w.at, fn)
	var failed *Error
	switch {
	case !errors.As(err, &failed) || !errors.Is(err, ErrCrashed) || failed.Sent && !c.reads:
		return err
	case w.shared:
		return w.once(ctx, c, w.at, fn)
	}
	return w.isolated(ctx, c, fn)
}

// ready returns when a process can take the call.
func (w *worker) ready(ctx context.Context, c call) error {
	p, err := w.acquire(ctx, c.who)
	if err != nil {
		return c.fail(err, false)
	}
	w.release(p, c.who, unknown, nil)
	return nil
}

// once makes the call on the process that acquire returns.
func (w *worker) once(ctx context.Context, c call, acquire func(context.Context, *call) (*process, error), fn func(context.Context, *process) error) error {
	p, err := acquire(ctx, &c)
	if err != nil {
		return c.fail(err, false)
	}
	// Not a deadline: gRPC sends it to the plugin's side, which could fail the call first.
	dog, cancel := watch(ctx, w.spec.clock, c.within)
	defer cancel()
	made := &sending{plugin: c.name}
	liveness, err := w.classify(ctx, dog.ctx, p, guard(func() error { return fn(withSending(dog.ctx, made), p) }))
	w.release(p, c.who, liveness, err)
	if err != nil {
		return c.fail(err, made.sent.Load())
	}
	return nil
}

// guard turns a panic over a plugin's answer into an error.
func guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrMalformed, v, debug.Stack())
		}
	}()
	return fn()
}

// liveness is what a call shows about its process.
type liveness int

const (
	unknown  liveness = iota // nothing: the caller went away
	answered                 // it works, whatever it answered
	silent                   // it did not answer, and is not given up for that
	died                     // it must not be used again
)

// classify returns why a call failed, and what that shows about the process. ctx is the caller's, callCtx
// has the call's deadline.
func (w *worker) classify(ctx, callCtx context.Context, p *process, err error) (liveness, error) {
	if err == nil {
		return answered, nil
	}
	_, remote := status.FromError(err)
	switch {
	case ctx.Err() != nil:
		return unknown, ended(ctx)
	case errors.Is(ended(callCtx), ErrTimeout) && w.shared:
		return silent, ErrTimeout
	case errors.Is(ended(callCtx), ErrTimeout):
		return died, ErrTimeout
	case !remote:
		return answered, err // our own view of the answer
	case w.isClosed():
		return unknown, ErrClosed
	case p.lost(ctx, err):
		return died, p.crash(ctx, err)
	}
	return answered, asRemote(err)
}

func (w *worker) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// acquire returns a living process for one call, which release gives back.
func (w *worker) acquire(ctx context.Context, by who) (*process, error) {
	for {
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		p, a, err := w.offer(ctx, by)
		if p != nil || err != nil {
			return p, err
		}
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
		case <-ctx.Done():
			return nil, ended(ctx)
		}
	}
}

// offer returns a process, or a start to wait for, which is in the trace of ctx.
func (w *worker) offer(ctx context.Context, by who) (*process, *attempt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, ErrClosed
	}
	if p := w.current; p != nil && p.cmd.gone() {
		if p.calls == 0 { // else it is counted where they end
			w.backoffs.count(w.backoffKey(who{}), fmt.Errorf("%w: %s", ErrCrashed, p.cmd.exitReason()), w.spec)
		}
		w.removeOperations(p)
		w.drain(p)
	}
	if err := w.backoffs.check(w.backoffKey(by), w.spec); err != nil {
		return nil, nil, err
	}
	switch {
	case w.current != nil:
		w.current.calls++
		return w.current, nil, nil
	case w.attempt != nil:
		return nil, w.attempt, nil
	}
	if err := w.backoffs.check(w.backoffKey(who{}), w.spec); err != nil {
		return nil, nil, err
	}
	w.attempt = &attempt{done: make(chan struct{})}
	w.ending.Add(1)
	go w.launch(trace.ContextWithSpan(w.ctx, trace.SpanFromContext(ctx)), w.attempt)
	return nil, w.attempt, nil
}

// launch starts a process; the end of ctx interrupts that.
func (w *worker) launch(ctx context.Context, a *attempt) {
	defer w.ending.Done()
	p, err := w.spec.start(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(a.done)
	w.attempt = nil
	switch {
	case err != nil:
		a.err = err
		w.backoffs.count(w.backoffKey(who{}), err, w.spec)
	case w.closed:
		a.err = ErrClosed
		w.ending.Add(1)
		go w.finish(p)
	default:
		w.current = p
		w.live[p] = struct{}{}
		if w.shared {
			p.used = w.spec.clock.Now()
			w.ending.Add(1)
			go w.endWhenIdle(p)
		}
	}
}

// release gives the process back after a call.
func (w *worker) release(p *process, by who, v liveness, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.calls--
	p.used = w.spec.clock.Now()
	switch v {
	case died:
		w.blame(p, by, err)
		w.removeOperations(p)
		w.drain(p)
	case silent:
		if p.silences++; p.silences >= w.spec.limits.Deaths {
			w.blame(p, by, err)
			w.drain(p)
		}
	case answered:
		p.silences = 0
		w.backoffs.clear(w.backoffKey(by))
		if !p.draining {
			w.backoffs.clear(w.backoffKey(who{}))
		}
	case unknown:
	}
	w.retire(p)
}

// blame counts the death of a process against a plugin, once. The caller holds the lock.
func (w *worker) blame(p *process, by who, why error) {
	if _, counted := p.blamed[by]; counted {
		return
	}
	p.blamed[by] = struct{}{}
	w.backoffs.count(w.backoffKey(by), why, w.spec)
}

func (w *worker) backoffKey(by who) backoffKey { return backoffKey{w.key, by} }

// drain takes a process out of use. Calls it is still answering may end; then retire ends it. The
// caller holds the lock.
func (w *worker) drain(p *process) {
	p.draining = true
	if w.current == p {
		w.current = nil
	}
	w.retire(p)
}

// retire ends a draining process that has neither a call nor an operation. The
// caller holds the lock.
func (w *worker) retire(p *process) {
	if _, live := w.live[p]; !live || !p.draining || p.calls > 0 || p.operations > 0 {
		return
	}
	delete(w.live, p)
	w.ending.Add(1)
	go w.finish(p)
}

func (w *worker) finish(p *process) {
	defer w.ending.Done()
	p.end()
}

// close ends the processes and waits until they are gone. Calls that are under way fail with
// ErrClosed.
func (w *worker) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		w.cancel()
		for p := range w.live {
			w.ending.Add(1)
			go w.finish(p)
		}
		clear(w.live)
		clear(w.homes)
		w.current = nil
	}
	w.mu.Unlock()
	w.ending.Wait()
}
