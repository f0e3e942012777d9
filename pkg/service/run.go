package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// readyInterval is how often the gRPC health status is brought in line with the conditions.
const readyInterval = 200 * time.Millisecond

// ErrRanBefore is returned by the second call of Run.
var ErrRanBefore = errors.New("service was run before")

// routes adds what every service answers over HTTP. Metrics of controller-runtime are process-wide and shown by every service in it.
func (r *Runtime) routes() {
	gatherers := prometheus.Gatherers{r.registry, ctrlmetrics.Registry}
	r.mux.Handle("GET /metrics", promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(r.base.Log.Handler(), slog.LevelWarn)}))
	r.mux.Handle("GET /readyz", &r.ready)
	r.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintln(w, "ok")
	})
}

// Run serves until ctx ends, a part fails, or a listener breaks. Then, in this order: not ready, parts are told to stop
// (they pull no more work and hand over), the parts of GoLast are, gRPC and HTTP finish open calls within a limit, connections
// are closed.
// It returns the failures, nil when ctx simply ended. It is called once.
func (r *Runtime) Run(ctx context.Context) error {
	err := ErrRanBefore
	r.running.Do(func() {
		defer r.Close()
		err = r.run(ctx)
	})
	if err != nil {
		return fmt.Errorf("service %s: %w", r.base.Name, err)
	}
	return nil
}

func (r *Runtime) run(ctx context.Context) error {
	// Neither parts nor servers see ctx end directly: the order of the shutdown is decided here.
	detached := context.WithoutCancel(ctx)
	partsCtx, stopParts := context.WithCancel(detached)
	defer stopParts()
	r.addOwnParts()

	server := r.httpServer()
	served := make(chan error, 2)
	serve := func(name string, run func() error) {
		defer stopParts()
		if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			served <- fmt.Errorf("%s: %w", name, err)
			return
		}
		served <- nil
	}
	go serve("grpc server", func() error { return r.grpc.Serve(r.grpcLis) })
	go serve("http server", func() error { return server.Serve(r.httpLis) })
	stopWatching := context.AfterFunc(ctx, func() {
		r.base.Log.Info("stopping", "cause", context.Cause(ctx))
		r.drain()
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
	r.stopServers(detached, server)
	return errors.Join(append(failures, <-served, <-served)...)
}

// addOwnParts adds the parts every service has.
func (r *Runtime) addOwnParts() {
	var synced, connected atomic.Bool
	r.ReadyWhen("kubernetes cache", synced.Load)
	r.ReadyWhen("nats", func() bool {
		// Once is enough: an outage delays work and leaves the service's answers right.
		if !connected.Load() && r.fabric.Connected() {
			connected.Store(true)
		}
		return connected.Load()
	})
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

// followReadiness keeps the gRPC health status in line with the conditions until the parts are to end. It also keeps the group alive.
func (r *Runtime) followReadiness(ctx context.Context) error {
	ticker := r.base.Clock.NewTicker(readyInterval)
	defer ticker.Stop()
	was := false
	for {
		is := len(r.ready.missing()) == 0
		if is != was {
			r.grpc.SetServing(is)
			r.base.Log.Info("readiness changed", "ready", is, "grpc", r.GRPCAddr(), "http", r.HTTPAddr())
			was = is
		}
		select {
		case <-ctx.Done():
			r.drain()
			return nil
		case <-ticker.C():
		}
	}
}

// drain makes the service unready for good.
func (r *Runtime) drain() {
	r.ready.stop()
	r.grpc.Drain()
}

// stopServers lets open calls end, within a limit.
func (r *Runtime) stopServers(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(ctx, CallLimit)
	defer cancel()
	r.grpc.Stop(ctx)
	if err := server.Shutdown(ctx); err != nil {
		r.base.Log.Warn("requests cut off", "error", err)
		_ = server.Close()
	}
}

func (r *Runtime) httpServer() *http.Server {
	return &http.Server{
		Handler:           r.mux,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(r.base.Log.Handler(), slog.LevelWarn),
	}
}
