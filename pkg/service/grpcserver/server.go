// Package grpcserver is the gRPC server all services use: traces, metrics, deadlines, validation,
// error details, panics turned into errors, health per service, reflection and an orderly stop, set
// up once and the same everywhere.
package grpcserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"buf.build/go/protovalidate"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"k8s.io/utils/clock"

	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
)

// Defaults of Config.
const (
	// DefaultUnaryTimeout is the deadline of a unary call whose caller set none.
	DefaultUnaryTimeout = time.Minute
	// DefaultMaxConnectionAge makes clients connect anew, and so find new replicas.
	DefaultMaxConnectionAge = 5 * time.Minute
	// MaxMessage bounds the messages that a server takes, in bytes. They are read before their
	// caller is known.
	MaxMessage = 4 << 20
	// MinClientPing is how often a client may ping at most.
	MinClientPing = 30 * time.Second
)

// Config describes a server.
type Config struct {
	// Log gets failures that callers only see as INTERNAL, and every call at debug level. Required.
	Log *slog.Logger
	// Registerer gets the server's metrics. Required.
	Registerer prometheus.Registerer
	// Tracer makes a span per call, health checks and polls of operations excepted. Required.
	Tracer trace.TracerProvider
	// Propagator reads the trace context of callers. Required.
	Propagator propagation.TextMapPropagator
	// TLS is how to serve; nil means in the clear.
	TLS *tls.Config
	// Authorize is called for every call; nil allows every caller.
	Authorize Authorizer
	// Audited reports which methods change or reveal something: each call of one is logged with who
	// called. nil means none.
	Audited func(fullMethod string) bool
	// Clock measures when streams are authorized again; nil means the real one.
	Clock clock.WithTicker
	// MaxConnectionAge limits the age of connections; open calls are not cut off. 0 means
	// DefaultMaxConnectionAge.
	MaxConnectionAge time.Duration
}

// Server is a gRPC server. It implements grpc.ServiceRegistrar.
type Server struct {
	grpc   *grpc.Server
	health *health.Server

	stopping chan struct{} // closed by Stop

	mu       sync.Mutex
	services []string
	serving  bool
	stopped  bool
}

// New returns a server that serves health (everything NOT_SERVING but the process itself) and
// reflection.
func New(cfg Config) (*Server, error) {
	validator, err := protovalidate.New()
	if err != nil {
		return nil, fmt.Errorf("request validator: %w", err)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	metrics := newMetrics()
	if err := cfg.Registerer.Register(metrics); err != nil {
		return nil, fmt.Errorf("gRPC metrics: %w", err)
	}
	s := &Server{health: health.NewServer(), stopping: make(chan struct{})}
	s.grpc = grpc.NewServer(serverOptions(cfg, interceptorChain{
		reports: reportInterceptors{metrics, callLog{cfg.Log}}, log: cfg.Log, authorize: cfg.Authorize, audited: cfg.Audited, clock: cfg.Clock, validator: validator,
		stopping: s.stopping,
	})...)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	return s, nil
}

func serverOptions(cfg Config, c interceptorChain) []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(cfg.Tracer),
			otelgrpc.WithPropagators(cfg.Propagator),
			// async-operation-monitor calls GetProgress for each operation, every few seconds.
			otelgrpc.WithFilter(filters.None(filters.HealthCheck(), filters.FullMethodName(operationv1.OperationService_GetProgress_FullMethodName))),
		)),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: cmp.Or(cfg.MaxConnectionAge, DefaultMaxConnectionAge)}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: MinClientPing, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(c.unaryInterceptors()...),
		grpc.ChainStreamInterceptor(c.streamInterceptors()...),
	}
	if cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	return opts
}

// RegisterService adds a service with a health status of its own. It must be called before Serve.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.grpc.RegisterService(desc, impl)
	s.RegisterHealth(desc.ServiceName)
}

// RegisterHealth adds a health status under a name that is no service.
func (s *Server) RegisterHealth(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services = append(s.services, name)
	s.health.SetServingStatus(name, s.servingStatus())
}

// SetServing sets the health status of all registered services. The status of the empty name says
// that the process answers and is not touched. After Stop it has no effect.
func (s *Server) SetServing(serving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = serving
	for _, name := range s.services {
		s.health.SetServingStatus(name, s.servingStatus())
	}
}

func (s *Server) servingStatus() healthpb.HealthCheckResponse_ServingStatus {
	if s.serving {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

// Serve serves lis, which it closes, until Stop is called, and returns nil then.
func (s *Server) Serve(lis net.Listener) error {
	err := s.grpc.Serve(lis)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped && (err == nil || errors.Is(err, grpc.ErrServerStopped)) {
		return nil
	}
	return err
}

// Drain makes every health status NOT_SERVING for good, so that callers go elsewhere; calls are
// still answered.
func (s *Server) Drain() { s.health.Shutdown() }

// Stop drains, refuses new calls, ends streams with UNAVAILABLE, lets unary calls finish until ctx
// ends, then cuts them off. It is safe to call again.
func (s *Server) Stop(ctx context.Context) {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	s.mu.Unlock()
	s.health.Shutdown()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
}
