package service

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// readyInterval is how often the gRPC health status is brought in line with the conditions.
const readyInterval = 200 * time.Millisecond

// ErrRanBefore is returned by the second call of Run.
var ErrRanBefore = errors.New("service was run before")

// Run serves until ctx ends, a part fails, or a listener breaks. Then, in this order: not ready,
// parts begin to stop
// (they pull no more work and hand over), the parts of GoLast are, gRPC and HTTP finish open calls
// within a limit, connections
// are closed.
// It returns the failures, nil when ctx simply ended. It is called once.
func (r *Runtime) Run(ctx context.Context) error {
	err := ErrRanBefore
	r.running.Do(func() {
		defer r.Close()
		err = r.runRuntime(ctx)
	})
	if err != nil {
		return fmt.Errorf("service %s: %w", r.base.Name, err)
	}
	return nil
}

func (r *Runtime) runRuntime(ctx context.Context) error {
	// Neither parts nor servers see ctx end directly: the order of the shutdown is decided here.
	detached := context.WithoutCancel(ctx)
	partsCtx, stopParts := context.WithCancel(detached)
	defer stopParts()
	r.addOwnParts()

	served := r.startServers(stopParts)
	stopWatching := context.AfterFunc(ctx, func() {
		r.base.Log.Info("Stopping service", "cause", context.Cause(ctx))
		r.drainServers()
		stopParts()
	})
	defer stopWatching()

	lastCtx, stopLast := context.WithCancel(detached)
	defer stopLast()
	lastErr := make(chan error, 1)
	go func() {
		err := r.last.Run(lastCtx)
		if err != nil {
			stopParts()
		}
		lastErr <- err
	}()
	partsErr := r.parts.Run(partsCtx)
	stopLast()
	failures := []error{partsErr, <-lastErr}
	r.stopServers(detached)
	return errors.Join(append(failures, served())...)
}

// addOwnParts adds the parts every service has.
func (r *Runtime) addOwnParts() {
	var synced atomic.Bool
	nats := &serverReach{clock: r.base.Clock, grace: OutageGrace}
	r.ReadyWhen("kubernetes API", r.api.isRecent)
	r.ReadyWhen("kubernetes cache", synced.Load)
	r.ReadyWhen("nats", func() bool {
		if r.fabric.Connected() {
			nats.noteReached()
		}
		return nats.isRecent()
	})
	r.Go("API server probe", func(ctx context.Context) error { return r.api.probeServer(ctx, r.config, r.base.Clock) })
	r.Go("controllers", r.manager.Start)
	r.Go("cache", func(ctx context.Context) error {
		synced.Store(r.manager.GetCache().WaitForCacheSync(ctx))
		return nil
	})
	r.Go("readiness", r.followReadiness)
	r.GoLast("lifetime", func(ctx context.Context) error { // so that parts can be added as long as the service runs
		<-ctx.Done()
		return nil
	})
}

// followReadiness keeps the gRPC health status in line with the conditions until the parts are to
// end. It also keeps the group alive.
func (r *Runtime) followReadiness(ctx context.Context) error {
	ticker := r.base.Clock.NewTicker(readyInterval)
	defer ticker.Stop()
	was := false
	for {
		is := len(r.ready.missingConditions()) == 0
		if is != was {
			r.grpc.SetServing(is)
			r.base.Log.Info("Readiness changed", "ready", is, "grpc", r.GRPCAddr(), "http", r.HTTPAddr())
			was = is
		}
		select {
		case <-ctx.Done():
			r.drainServers()
			return nil
		case <-ticker.C():
		}
	}
}

// drainServers makes the service unready for good.
func (r *Runtime) drainServers() {
	r.ready.stopReadiness()
	r.grpc.Drain()
}
