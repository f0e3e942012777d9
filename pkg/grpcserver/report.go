package grpcserver

import (
	"context"
	"log/slog"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
)

// callReport counts calls and logs them at debug level.
type callReport struct {
	log      *slog.Logger
	handled  *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCallReport(log *slog.Logger, reg prometheus.Registerer) (*callReport, error) {
	r := &callReport{
		log: log,
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_grpc_server_handled_total",
			Help: "RPCs that ended, by service, method and gRPC code.",
		}, []string{"grpc_service", "grpc_method", "grpc_code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "holdfast_grpc_server_handling_seconds",
			Help:    "Time RPCs took until they ended, by service and method.",
			Buckets: []float64{.001, .005, .025, .1, .5, 2.5, 10, 60},
		}, []string{"grpc_service", "grpc_method"}),
	}
	for _, c := range []prometheus.Collector{r.handled, r.duration} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// ServerReporter implements interceptors.ServerReportable.
func (r *callReport) ServerReporter(ctx context.Context, meta interceptors.CallMeta) (interceptors.Reporter, context.Context) {
	if open(meta.FullMethod()) {
		return interceptors.NoopReporter{}, ctx
	}
	return &callEnd{report: r, meta: meta, ctx: ctx}, ctx
}

type callEnd struct {
	interceptors.NoopReporter
	report *callReport
	meta   interceptors.CallMeta
	ctx    context.Context //nolint:containedctx // lives as long as the call it reports on
}

// PostCall is called when the call has ended.
func (e *callEnd) PostCall(err error, took time.Duration) {
	code := status.Code(err)
	e.report.handled.WithLabelValues(e.meta.Service, e.meta.Method, code.String()).Inc()
	e.report.duration.WithLabelValues(e.meta.Service, e.meta.Method).Observe(took.Seconds())
	e.report.log.DebugContext(e.ctx, "call ended", "method", e.meta.FullMethod(), "code", code.String(), "duration", took)
}
