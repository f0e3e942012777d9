package pluginhost

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// newCallTimes returns the metric of calls, registered unless r is nil.
func newCallTimes(r prometheus.Registerer) (*prometheus.HistogramVec, error) {
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "holdfast_plugin_call_seconds", Help: "Time of calls to plugins, by the name of the binary, gRPC method and status code.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), //nolint:mnd // 1 ms to 65 s
	}, []string{"plugin", "method", "code"})
	if r == nil {
		return calls, nil
	}
	if err := r.Register(calls); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return calls, nil
}

// callTimes takes the time of each call to the processes of one binary, streams to their end.
type callTimes struct {
	plugin string
	calls  *prometheus.HistogramVec
}

// methodKey is where a call's context holds its method.
type methodKey struct{}

// TagRPC notes the method, unless it is one of go-plugin's own or a probe.
func (callTimes) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	method := strings.TrimPrefix(info.FullMethodName, "/")
	if strings.HasPrefix(method, "plugin.") || strings.HasPrefix(method, "grpc.") {
		return ctx
	}
	return context.WithValue(ctx, methodKey{}, method)
}

// HandleRPC takes the time of a call that ended. The code is that of the answer, Unknown where the
// error has none.
func (t callTimes) HandleRPC(ctx context.Context, event stats.RPCStats) {
	end, ok := event.(*stats.End)
	if !ok {
		return
	}
	if method, ok := ctx.Value(methodKey{}).(string); ok {
		code := codes.OK
		if end.Error != nil {
			code = status.Code(end.Error)
		}
		t.calls.WithLabelValues(t.plugin, method, code.String()).Observe(end.EndTime.Sub(end.BeginTime).Seconds())
	}
}

// TagConn changes nothing.
func (callTimes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (callTimes) HandleConn(context.Context, stats.ConnStats) {}
