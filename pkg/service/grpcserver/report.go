package grpcserver

import (
	"context"
	"log/slog"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// namespace begins the names of the metrics, such as holdfast_grpc_server_handled_total.
const namespace = "holdfast"

// newMetrics returns the metrics of calls: how many began and ended, how long they took, and
// messages of streams.
func newMetrics() *prometheus.ServerMetrics {
	return prometheus.NewServerMetrics(
		prometheus.WithServerCounterOptions(prometheus.WithNamespace(namespace)),
		prometheus.WithServerHandlingTimeHistogram(
			prometheus.WithHistogramNamespace(namespace),
			prometheus.WithHistogramBuckets([]float64{.001, .005, .025, .1, .5, 2.5, 10, 60}),
		),
	)
}

// reportInterceptors are the interceptors that count calls and log them; probes and tools are left out.
type reportInterceptors struct {
	metrics *prometheus.ServerMetrics
	log     callLog
}

func (r reportInterceptors) unaryInterceptors() []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{
		selector.UnaryServerInterceptor(r.metrics.UnaryServerInterceptor(), reportedMethods()),
		selector.UnaryServerInterceptor(interceptors.UnaryServerInterceptor(r.log), reportedMethods()),
	}
}

func (r reportInterceptors) streamInterceptors() []grpc.StreamServerInterceptor {
	return []grpc.StreamServerInterceptor{
		selector.StreamServerInterceptor(r.metrics.StreamServerInterceptor(), reportedMethods()),
		selector.StreamServerInterceptor(interceptors.StreamServerInterceptor(r.log), reportedMethods()),
	}
}

func reportedMethods() selector.Matcher {
	return selector.MatchFunc(func(_ context.Context, call interceptors.CallMeta) bool { return !isOpenMethod(call.FullMethod()) })
}

// callLog logs each call that ended, at debug level.
type callLog struct{ log *slog.Logger }

// ServerReporter implements interceptors.ServerReportable.
func (l callLog) ServerReporter(ctx context.Context, meta interceptors.CallMeta) (interceptors.Reporter, context.Context) {
	return &callEnd{log: l.log, method: meta.FullMethod(), ctx: ctx}, ctx
}

type callEnd struct {
	interceptors.NoopReporter
	log    *slog.Logger
	method string
	ctx    context.Context //nolint:containedctx // lives as long as the call it reports on
}

// PostCall is called when the call has ended.
func (e *callEnd) PostCall(err error, took time.Duration) {
	e.log.DebugContext(e.ctx, "Call ended", "method", e.method, "code", status.Code(err).String(), "duration", took)
}
