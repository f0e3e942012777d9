package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/action"
)

// worker keeps one process of a binary at work: it starts it at the first call, replaces it when it was lost, and gives up
// for a while when that happens too often in a row. Deaths are counted per process, not per call, or one crash under many
// calls would look like many.
type worker struct {
	ctx    context.Context // of the session; its end interrupts starts
	cancel context.CancelFunc
	spec   *spec

	mu      sync.Mutex
	current *process // takes new calls; nil when none runs
	attempt *attempt // a start under way
	live    map[*process]struct{}
	ending  sync.WaitGroup // processes that are being ended
	deaths  int            // since the last call that was answered
	last    error          // the last death
	rested  time.Time      // when the next start is allowed after too many
	closed  bool
}

// attempt is a start that any number of calls wait for.
type attempt struct {
	done chan struct{}
	err  error
}

func newWorker(ctx context.Context, s *spec) *worker {
	ctx, cancel := context.WithCancel(ctx)
	return &worker{ctx: ctx, cancel: cancel, spec: s, live: map[*process]struct{}{}}
}

// call describes one call, for its error.
type call struct {
	plugin, method string
	object         *action.Object // what it is about; nil for nothing
	within         time.Duration
}

func (c *call) fail(err error) error {
	e := &Error{Plugin: c.plugin, Method: c.method, Err: err}
	if c.object != nil {
		if id, err := c.object.Identity(); err == nil {
			e.Object = id.String()
		}
	}
	return e
}

// do runs fn, which makes one call on a process, and returns an *Error when it fails.
func (w *worker) do(ctx context.Context, c call, fn func(ctx context.Context, p *process) error) error {
	p, err := w.acquire(ctx)
	if err != nil {
		return c.fail(err)
	}
	// Not a deadline: gRPC would tell it to the plugin's side, which could answer it before ours sees it.
	dog, cancel := watch(ctx, w.spec.clock, c.within)
	defer cancel()
	verdict, err := w.judge(ctx, dog.ctx, p, guard(func() error { return fn(dog.ctx, p) }))
	w.release(p, verdict, err)
	if err != nil {
		return c.fail(err)
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

// verdict is what a call tells about its process.
type verdict int

const (
	unknown  verdict = iota // nothing: the caller went away
	answered                // it works, whatever it answered
	died                    // it must not be used again
)

// judge says why a call failed, and what that tells about the process. ctx is the caller's, callCtx has the call's deadline.
func (w *worker) judge(ctx, callCtx context.Context, p *process, err error) (verdict, error) {
	if err == nil {
		return answered, nil
	}
	_, remote := status.FromError(err)
	switch {
	case ctx.Err() != nil:
		return unknown, ended(ctx)
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
func (w *worker) acquire(ctx context.Context) (*process, error) {
	for {
		p, a, err := w.offer()
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

// offer returns a process, or a start to wait for.
func (w *worker) offer() (*process, *attempt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != nil && w.current.cmd.gone() {
		w.bury(w.current, fmt.Errorf("%w: %s", ErrCrashed, w.current.cmd.fate()))
	}
	switch {
	case w.closed:
		return nil, nil, ErrClosed
	case w.current != nil:
		w.current.calls++
		return w.current, nil, nil
	case w.attempt != nil:
	case w.deaths >= w.spec.limits.Deaths && w.spec.clock.Now().Before(w.rested):
		return nil, nil, fmt.Errorf("%w (%d times): %w", ErrStopped, w.deaths, w.last)
	default:
		w.attempt = &attempt{done: make(chan struct{})}
		w.ending.Add(1)
		go w.launch(w.attempt)
	}
	return nil, w.attempt, nil
}

func (w *worker) launch(a *attempt) {
	defer w.ending.Done()
	p, err := w.spec.start(w.ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(a.done)
	w.attempt = nil
	switch {
	case err != nil:
		a.err = err
		w.countDeath(err)
	case w.closed:
		a.err = ErrClosed
		w.ending.Add(1)
		go w.finish(p)
	default:
		w.current = p
		w.live[p] = struct{}{}
	}
}

// release gives the process back after a call.
func (w *worker) release(p *process, v verdict, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.calls--
	switch {
	case v == died:
		w.bury(p, err)
	case v == answered && !p.buried:
		w.deaths = 0
	}
	w.retire(p)
}

// bury takes a process out of use. Calls it is still answering may end; then retire ends it. The caller holds the lock.
func (w *worker) bury(p *process, why error) {
	if p.buried {
		return
	}
	p.buried = true
	w.countDeath(why)
	if w.current == p {
		w.current = nil
	}
	w.retire(p)
}

// countDeath counts a death. The caller holds the lock.
func (w *worker) countDeath(why error) {
	w.deaths++
	w.last = why
	w.rested = w.spec.clock.Now().Add(w.spec.limits.Rest)
}

// retire ends a buried process that answers no call any more. The caller holds the lock.
func (w *worker) retire(p *process) {
	if _, live := w.live[p]; !live || !p.buried || p.calls > 0 {
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

// close ends the processes and waits until they are gone. Calls that are under way fail with ErrClosed.
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
		w.current = nil
	}
	w.mu.Unlock()
	w.ending.Wait()
}
