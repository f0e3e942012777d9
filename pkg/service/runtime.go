package service

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/holdfast-io/holdfast/pkg/fabric"
)

// Runtime is a service's running half: its connections, servers and parts.
type Runtime struct {
	fabric *fabric.Client
}

// New connects to Kubernetes and NATS and opens the listeners; nothing is served before Run.
// When it fails, everything it opened is closed again.
func New(ctx context.Context, base Base) (*Runtime, error) {
	return nil, errors.New("not built yet")
}

// GRPC is where the service registers its gRPC services, before Run. Each gets its own health status.
func (r *Runtime) GRPC() grpc.ServiceRegistrar { return nil }

// Mux is the HTTP server's mux. /metrics, /healthz and /readyz are taken; add others before Run.
func (r *Runtime) Mux() *http.ServeMux { return nil }

// Manager is the controller-runtime manager; it is started by Run.
func (r *Runtime) Manager() ctrl.Manager { return nil }

// RestConfig is the connection to the API server.
func (r *Runtime) RestConfig() *rest.Config { return nil }

// Fabric is the connection to NATS.
func (r *Runtime) Fabric() *fabric.Client { return r.fabric }

// Registry is the service's own metrics registry, served on /metrics.
func (r *Runtime) Registry() *prometheus.Registry { return nil }

// GRPCAddr is the host:port gRPC listens on, with the port that was really taken.
func (r *Runtime) GRPCAddr() string { return "" }

// HTTPAddr is the host:port HTTP listens on, with the port that was really taken.
func (r *Runtime) HTTPAddr() string { return "" }

// Go adds a part to the run group. run must return soon after its ctx ends (that is: stop pulling work, hand over).
// A part that returns an error or panics before that stops the service; one that returns nil is done.
// Parts added before Run start with it, later ones at once.
func (r *Runtime) Go(name string, run func(ctx context.Context) error) {}

// ReadyWhen adds a condition to readiness: /readyz and the gRPC health status are positive only while every check says true.
// check must be fast and safe for concurrent use.
func (r *Runtime) ReadyWhen(name string, check func() bool) {}

// Run serves until ctx ends, a part fails, or a listener breaks. Then, in this order: not ready, parts are told to stop
// (they pull no more work and hand over), gRPC and HTTP finish open calls within a limit, connections are closed.
func (r *Runtime) Run(ctx context.Context) error { return errors.New("not built yet") }

// Close releases what New opened. It is only needed when Run is never called; calling it again is harmless.
func (r *Runtime) Close() {}
