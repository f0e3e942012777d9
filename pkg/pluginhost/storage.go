package pluginhost

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// storage is a plugin that has to be told its configuration before it works. It is told again whenever a new process
// takes over. Each configuration has a process of its own, because a process keeps one per plugin.
type storage struct {
	plugin
	config map[string]string
	init   func(ctx context.Context, conn grpc.ClientConnInterface) error

	mu    sync.Mutex
	ready *process // the one that was told
}

func (s *storage) slow(method string) call {
	return call{plugin: s.name, method: method, within: s.worker.spec.limits.Storage}
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

func (s *storage) prepare(ctx context.Context, p *process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready == p {
		return nil
	}
	if err := s.init(ctx, p.conn); err != nil {
		failed := status.Convert(err).Proto()
		failed.Message = "Init: " + failed.GetMessage()
		return status.ErrorProto(failed)
	}
	s.ready = p
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
	settled sync.Once
}

// transfer holds a process for a stream. After an error there is nothing to end.
func (s *storage) transfer(ctx context.Context, method string) (*transfer, error) {
	c := s.slow(method)
	p, err := s.worker.acquire(ctx)
	if err != nil {
		return nil, c.fail(err)
	}
	t := &transfer{s: s, c: c, caller: ctx, p: p}
	t.watchdog, t.cancel = watch(ctx, s.worker.spec.clock, c.within)
	if err := t.step(func() error { return s.prepare(t.ctx, p) }); err != nil {
		return nil, t.end(err)
	}
	return t, nil
}

// end gives the process back. It returns an *Error for err, nil for nil; only the first call counts.
func (t *transfer) end(err error) error {
	t.settled.Do(func() {
		v, reason := t.s.worker.judge(t.caller, t.ctx, t.p, err)
		t.s.worker.release(t.p, v, reason)
		t.cancel()
		if err = reason; err != nil {
			err = t.c.fail(err)
		}
	})
	return err
}
