package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewLogger(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, "warn", "json")
	require.NoError(t, err)
	log.Info("quiet")
	log.Warn("loud", "backup", "a")
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line), "one line only: %s", out.String())
	require.Equal(t, "loud", line["msg"])
	require.Equal(t, "a", line["backup"])

	_, err = telemetry.NewLogger(&out, "loud", "text")
	require.ErrorContains(t, err, `log level "loud"`)
	_, err = telemetry.NewLogger(&out, "info", "xml")
	require.ErrorContains(t, err, `log format "xml"`)
}

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestTracingIsOffWithoutAnEndpoint(t *testing.T) {
	for _, vars := range []map[string]string{
		{},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
		// Whoever turns the SDK off does not mean the service, which refused to start.
		{"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "jaeger", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
	} {
		tracing, err := telemetry.NewTracing(t.Context(), "queue-scheduler", "q-1", env(vars))
		require.NoError(t, err)
		_, span := tracing.Provider.Tracer("test").Start(t.Context(), "x")
		require.False(t, span.IsRecording())
		require.NoError(t, tracing.Shutdown(t.Context()))
	}
}

func TestTracingRefusesWhatItCannotDo(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_TRACES_EXPORTER":               "jaeger",
		"OTEL_EXPORTER_OTLP_PROTOCOL":        "http/protobuf",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
	} {
		_, err := telemetry.NewTracing(t.Context(), "s", "i", env(map[string]string{name: value}))
		require.ErrorIs(t, err, telemetry.ErrUnsupported)
		require.ErrorContains(t, err, name)
	}
}

// receiver is an OTLP collector that keeps what it gets.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	got chan *collector.ExportTraceServiceRequest
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.got <- req
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestSpansReachTheCollector(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	rec := &receiver{got: make(chan *collector.ExportTraceServiceRequest, 1)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, rec)
	go func() { _ = server.Serve(lis) }()
	defer server.Stop()

	endpoint := "http://" + lis.Addr().String()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	tracing, err := telemetry.NewTracing(t.Context(), "backup-runner", "b-1", env(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}))
	require.NoError(t, err)
	_, span := tracing.Provider.Tracer("test").Start(t.Context(), "backup")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, tracing.Shutdown(ctx))

	spans := (<-rec.got).GetResourceSpans()
	require.Len(t, spans, 1)
	require.Equal(t, "backup", spans[0].GetScopeSpans()[0].GetSpans()[0].GetName())
	attrs := map[string]string{}
	for _, kv := range spans[0].GetResource().GetAttributes() {
		attrs[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	require.Equal(t, "backup-runner", attrs["service.name"])
	require.Equal(t, "b-1", attrs["service.instance.id"])
}
