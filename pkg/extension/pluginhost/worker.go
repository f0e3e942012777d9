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
	spec   *processSpec

	mu      sync.Mutex
	current *process      // takes new calls; nil when none runs
	attempt *startAttempt // a start under way
	live    map[*process]struct{}
	ending  sync.WaitGroup // processes that are being ended
	closed  bool

	key      string // what the deaths of its processes are counted under
	backoffs *backoffs

	shared bool                          // by all jobs, see home.go
	homes  map[action.Operation]*process // operations that live in a process; nil if not shared
}

// startAttempt is a start that any number of calls wait for.
type startAttempt struct {
	done chan struct{}
	err  error
}

// newWorker returns a worker that shares no backoffs.
func newWorker(ctx context.Context, s *processSpec) *worker {
	ctx, cancel := context.WithCancel(ctx)
	return &worker{ctx: ctx, cancel: cancel, spec: s, live: map[*process]struct{}{}, backoffs: newBackoffs()}
}

// pluginCall describes one call.
type pluginCall struct {
	who
	method    string
	object    *action.Object   // what it is about; nil for nothing
	operation action.Operation // what it is about; zero for nothing
	within    time.Duration
	reads     bool // it changes nothing, so it may be made twice
}

func (c *pluginCall) callError(err error, sent bool) error {
	e := &Error{Plugin: c.name, Method: c.method, Err: err, Sent: sent}
	if c.object != nil {
		if id, err := c.object.Identity(); err == nil {
			e.Object = id.String()
		}
	}
	return e
}

// callProcess runs fn, which makes one call on a process, and returns an *Error when it fails. A crash
// fails all calls that the process had. Calls that the process cannot have received, or that only read,
// are repeated.
func (w *worker) callProcess(ctx context.Context, c pluginCall, fn func(ctx context.Context, p *process) error) error {
	err := w.callOnce(ctx, c, fn)
	var failed *Error
	if !errors.As(err, &failed) || !errors.Is(err, ErrCrashed) || failed.Sent && !c.reads {
		return err
	}
	return w.callOnce(ctx, c, fn)
}

// awaitReady returns when a process can take the call.
func (w *worker) awaitReady(ctx context.Context, c pluginCall) error {
	p, err := w.acquireProcess(ctx, c.who)
	if err != nil {
		return c.callError(err, false)
	}
	w.releaseProcess(p, c.who, unknown, nil)
	return nil
}

// callOnce makes the call once.
func (w *worker) callOnce(ctx context.Context, c pluginCall, fn func(context.Context, *process) error) error {
	p, err := w.processOf(ctx, &c)
	if err != nil {
		return c.callError(err, false)
	}
	// Not a deadline: gRPC sends it to the plugin's side, which could fail the call first.
	dog, cancel := startWatchdog(ctx, w.spec.clock, c.within)
	defer cancel()
	made := &callSending{plugin: c.name}
	liveness, err := w.classifyFailure(ctx, dog.ctx, p, guardPanic(func() error { return fn(withSending(dog.ctx, made), p) }))
	w.releaseProcess(p, c.who, liveness, err)
	if err != nil {
		return c.callError(err, made.sent.Load())
	}
	return nil
}

// guardPanic turns a panic over a plugin's answer into an error.
func guardPanic(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrMalformed, v, debug.Stack())
		}
	}()
	return fn()
}

// processLiveness is what a call shows about its process.
type processLiveness int

const (
	unknown  processLiveness = iota // nothing: the caller went away
	answered                        // it works, whatever it answered
	silent                          // it did not answer, and is not given up for that
	died                            // it must not be used again
)

// classifyFailure returns why a call failed, and what that shows about the process. ctx is the caller's, callCtx
// has the call's deadline.
func (w *worker) classifyFailure(ctx, callCtx context.Context, p *process, err error) (processLiveness, error) {
	if err == nil {
		return answered, nil
	}
	_, remote := status.FromError(err)
	switch {
	case ctx.Err() != nil:
		return unknown, contextCause(ctx)
	case errors.Is(contextCause(callCtx), ErrTimeout) && w.shared:
		return silent, ErrTimeout
	case errors.Is(contextCause(callCtx), ErrTimeout):
		return died, ErrTimeout
	case !remote:
		return answered, err // our own view of the answer
	case w.isClosed():
		return unknown, ErrClosed
	case p.isProcessLost(ctx, err):
		return died, p.crashError(ctx, err)
	}
	return answered, convertStatus(err)
}

func (w *worker) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// acquireProcess returns a living process for one call, which release gives back.
func (w *worker) acquireProcess(ctx context.Context, by who) (*process, error) {
	for {
		if ctx.Err() != nil {
			return nil, contextCause(ctx)
		}
		p, a, err := w.offerProcess(ctx, by)
		if p != nil || err != nil {
			return p, err
		}
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
		case <-ctx.Done():
			return nil, contextCause(ctx)
		}
	}
}

// offerProcess returns a process, or a start to wait for, which is in the trace of ctx.
func (w *worker) offerProcess(ctx context.Context, by who) (*process, *startAttempt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, ErrClosed
	}
	if p := w.current; p != nil && p.cmd.hasExited() {
		if p.calls == 0 { // else it is counted where they end
			w.backoffs.countDeath(w.backoffKey(who{}), fmt.Errorf("%w: %s", ErrCrashed, p.cmd.exitReason()), w.spec)
		}
		w.removeOperations(p)
		w.drainProcess(p)
	}
	if err := w.backoffs.checkStopped(w.backoffKey(by), w.spec); err != nil {
		return nil, nil, err
	}
	switch {
	case w.current != nil:
		w.current.calls++
		return w.current, nil, nil
	case w.attempt != nil:
		return nil, w.attempt, nil
	}
	if err := w.backoffs.checkStopped(w.backoffKey(who{}), w.spec); err != nil {
		return nil, nil, err
	}
	w.attempt = &startAttempt{done: make(chan struct{})}
	w.ending.Add(1)
	go w.launchProcess(trace.ContextWithSpan(w.ctx, trace.SpanFromContext(ctx)), w.attempt)
	return nil, w.attempt, nil
}

// launchProcess starts a process; the end of ctx interrupts that.
func (w *worker) launchProcess(ctx context.Context, a *startAttempt) {
	defer w.ending.Done()
	p, err := w.spec.startProcess(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(a.done)
	w.attempt = nil
	switch {
	case err != nil:
		a.err = err
		w.backoffs.countDeath(w.backoffKey(who{}), err, w.spec)
	case w.closed:
		a.err = ErrClosed
		w.ending.Add(1)
		go w.finishProcess(p)
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

// releaseProcess gives the process back after a call.
func (w *worker) releaseProcess(p *process, by who, v processLiveness, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.calls--
	p.used = w.spec.clock.Now()
	switch v {
	case died:
		w.blamePlugin(p, by, err)
		w.removeOperations(p)
		w.drainProcess(p)
	case silent:
		if p.silences++; p.silences >= w.spec.limits.Deaths {
			w.blamePlugin(p, by, err)
			w.drainProcess(p)
		}
	case answered:
		p.silences = 0
		w.backoffs.clearDeaths(w.backoffKey(by))
		if !p.draining {
			w.backoffs.clearDeaths(w.backoffKey(who{}))
		}
	case unknown:
	}
	w.retireProcess(p)
}

// blamePlugin counts the death of a process against a plugin, once. The caller holds the lock.
func (w *worker) blamePlugin(p *process, by who, why error) {
	if _, counted := p.blamed[by]; counted {
		return
	}
	p.blamed[by] = struct{}{}
	w.backoffs.countDeath(w.backoffKey(by), why, w.spec)
}

func (w *worker) backoffKey(by who) backoffKey { return backoffKey{w.key, by} }

// drainProcess takes a process out of use. Calls it is still answering may end; then retire ends it. The
// caller holds the lock.
func (w *worker) drainProcess(p *process) {
	p.draining = true
	if w.current == p {
		w.current = nil
	}
	w.retireProcess(p)
}

// retireProcess ends a draining process that has neither a call nor an operation. The
// caller holds the lock.
func (w *worker) retireProcess(p *process) {
	if _, live := w.live[p]; !live || !p.draining || p.calls > 0 || p.operations > 0 {
		return
	}
	delete(w.live, p)
	w.ending.Add(1)
	go w.finishProcess(p)
}

func (w *worker) finishProcess(p *process) {
	defer w.ending.Done()
	p.endProcess()
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
			go w.finishProcess(p)
		}
		clear(w.live)
		clear(w.homes)
		w.current = nil
	}
	w.mu.Unlock()
	w.ending.Wait()
}
