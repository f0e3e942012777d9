package pluginhost

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// storage is a plugin that needs Init with its configuration before other calls. Init is called
// again whenever a new process takes over. Each configuration has a process of its own, because a
// process keeps one per plugin, and a session has one storage for it, so that no process gets it
// twice.
type storage struct {
	plugin
	init func(ctx context.Context, conn grpc.ClientConnInterface) error
	turn chan struct{} // holds one token, of the call that runs Init
}

func newStorage(p plugin, init func(context.Context, grpc.ClientConnInterface) error) *storage {
	return &storage{plugin: p, init: init, turn: make(chan struct{}, 1)}
}

func (s *storage) slowCall(method string) pluginCall {
	return s.newCall(method, s.worker.spec.limits.Storage)
}

// slowQuery is a slow call that changes nothing, and may be repeated.
func (s *storage) slowQuery(method string) pluginCall {
	c := s.slowCall(method)
	c.reads = true
	return c
}

// runConfigured runs fn on a process that has the configuration.
func (s *storage) runConfigured(ctx context.Context, c pluginCall, fn func(ctx context.Context, p *process) error) error {
	return s.worker.callProcess(ctx, c, func(ctx context.Context, p *process) error {
		if err := s.initProcess(ctx, p); err != nil {
			return err
		}
		return fn(ctx, p)
	})
}

// initProcess calls Init on the process unless it has the configuration.
func (s *storage) initProcess(ctx context.Context, p *process) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if p.initialized {
		return nil
	}
	if err := s.init(withSending(ctx, &callSending{plugin: s.name}), p.conn); err != nil {
		failed := status.Convert(err).Proto()
		failed.Message = "Init: " + failed.GetMessage()
		return status.ErrorProto(failed)
	}
	p.initialized = true
	return nil
}

// openTransfer holds a process that has the configuration for a stream. After an error there is
// nothing to end.
func (s *storage) openTransfer(ctx context.Context, method string) (*transfer, error) {
	t, err := s.worker.openTransfer(ctx, s.slowCall(method))
	if err != nil {
		return nil, err
	}
	if err := t.runStep(func() error { return s.initProcess(t.ctx, t.p) }); err != nil {
		return nil, t.endTransfer(err)
	}
	return t, nil
}
