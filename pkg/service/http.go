package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// endpoint is one HTTP server of a service.
type endpoint struct {
	name     string
	listener net.Listener
	server   *http.Server
}

// Listen opens another HTTP endpoint, beside that of metrics and probes: it serves handler from Run
// on, over TLS when --tls-cert-file is given, without asking for client certificates. An address
// that other machines reach is refused without TLS. Errors name flag. It returns the URL of the
// endpoint, with the port that was really taken. Call it before Run.
func (r *Runtime) Listen(ctx context.Context, flag, address string, handler http.Handler) (url string, err error) {
	if err := checkAddress(address); err != nil {
		return "", errgrpc.Field(flag, "%v", err)
	}
	config, err := serverTLS(r.base.Options, tls.NoClientCert, r.base.Log, "http/1.1")
	if err != nil {
		return "", err
	}
	if config == nil && !isLoopback(address) {
		return "", errgrpc.Field(flag, "an address that others reach needs --tls-cert-file, and it is %q", address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	url = "http://" + listener.Addr().String()
	if config != nil {
		url = "https://" + listener.Addr().String()
		listener = tls.NewListener(listener, config)
	}
	r.endpoints = append(r.endpoints, &endpoint{name: flag, listener: listener, server: r.httpServer(handler)})
	return url, nil
}

// addRoutes adds what every service answers over HTTP. Metrics of controller-runtime are process-wide
// and shown by every service in it.
func (r *Runtime) addRoutes() {
	gatherers := prometheus.Gatherers{r.registry, ctrlmetrics.Registry}
	r.mux.Handle("GET /metrics", promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(r.base.Log.Handler(), slog.LevelWarn)}))
	r.mux.Handle("GET /readyz", &r.ready)
	r.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintln(w, "ok")
	})
}

func (r *Runtime) httpServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(r.base.Log.Handler(), slog.LevelWarn),
	}
}

// startServers starts every server; one that fails calls stop. The returned function waits for all of them
// and gives their failures.
func (r *Runtime) startServers(stop func()) (wait func() error) {
	r.endpoints = append(r.endpoints, &endpoint{name: "http server", listener: r.httpLis, server: r.httpServer(r.mux)})
	var serving sync.WaitGroup
	failures := make([]error, len(r.endpoints)+1)
	start := func(at int, name string, run func() error) {
		serving.Go(func() {
			defer stop()
			if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failures[at] = fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	for i, e := range r.endpoints {
		start(i, e.name, func() error { return e.server.Serve(e.listener) })
	}
	start(len(r.endpoints), "grpc server", func() error { return r.grpc.Serve(r.grpcLis) })
	return func() error {
		serving.Wait()
		return errors.Join(failures...)
	}
}

// stopServers lets open calls and requests end, within a limit.
func (r *Runtime) stopServers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, CallLimit)
	defer cancel()
	r.grpc.Stop(ctx)
	var stopping sync.WaitGroup
	for _, e := range r.endpoints {
		stopping.Go(func() {
			if err := e.server.Shutdown(ctx); err != nil {
				r.base.Log.Warn("Failed to end requests in time; closing their connections", "endpoint", e.name, "error", err)
				_ = e.server.Close()
			}
		})
	}
	stopping.Wait()
}
