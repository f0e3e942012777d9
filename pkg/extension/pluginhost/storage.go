package pluginhost

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// storage is a plugin that has to be told its configuration before it works. It is told again
// whenever a new process takes over. Each configuration has a process of its own, because a process
// keeps one per plugin, and a session has one storage for it, so that no process is told twice.
type storage struct {
	plugin
	init func(ctx context.Context, conn grpc.ClientConnInterface) error
	turn chan struct{} // holds one token, of whoever tells a process
}

func newStorage(p plugin, init func(context.Context, grpc.ClientConnInterface) error) *storage {
	return &storage{plugin: p, init: init, turn: make(chan struct{}, 1)}
}

func (s *storage) slow(method string) call { return s.call(method, s.worker.spec.limits.Storage) }

// look is a slow call that changes nothing.
func (s *storage) look(method string) call {
	c := s.slow(method)
	c.reads = true
	return c
}

// do runs fn on a process that knows the configuration.
func (s *storage) do(ctx context.Context, c call, fn func(ctx context.Context, p *process) error) error {
	return s.worker.do(ctx, c, func(ctx context.Context, p *process) error {
		if err := s.prepare(ctx, p); err != nil {
			return err
		}
		return fn(ctx, p)
	})
}

// prepare tells the process the configuration if it does not know it.
func (s *storage) prepare(ctx context.Context, p *process) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if p.told {
		return nil
	}
	if err := s.init(withSent(ctx, new(atomic.Bool)), p.conn); err != nil {
		failed := status.Convert(err).Proto()
		failed.Message = "Init: " + failed.GetMessage()
		return status.ErrorProto(failed)
	}
	p.told = true
	return nil
}

// transfer is a stream under a watchdog on a process that is held until end.
type transfer struct {
	*watchdog
	s       *storage
	c       call
	caller  context.Context
	p       *process
	cancel  context.CancelFunc
	sent    *atomic.Bool
	settled sync.Once
}

// stream is the context that the stream is opened with.
func (t *transfer) stream() context.Context { return withSent(t.ctx, t.sent) }

// transfer holds a process for a stream. After an error there is nothing to end.
func (s *storage) transfer(ctx context.Context, method string) (*transfer, error) {
	c := s.slow(method)
	p, err := s.worker.acquire(ctx, c.who)
	if err != nil {
		return nil, c.fail(err, false)
	}
	t := &transfer{s: s, c: c, caller: ctx, p: p, sent: new(atomic.Bool)}
	t.watchdog, t.cancel = watch(ctx, s.worker.spec.clock, c.within)
	if err := t.step(func() error { return s.prepare(t.ctx, p) }); err != nil {
		return nil, t.end(err)
	}
	return t, nil
}

// end gives the process back. It returns an *Error for err, nil for nil; only the first call
// counts.
func (t *transfer) end(err error) error {
	t.settled.Do(func() {
		v, reason := t.s.worker.judge(t.caller, t.ctx, t.p, err)
		t.s.worker.release(t.p, t.c.who, v, reason)
		t.cancel()
		if err = reason; err != nil {
			err = t.c.fail(err, t.sent.Load())
		}
	})
	return err
}
