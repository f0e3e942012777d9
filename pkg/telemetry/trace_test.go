package telemetry_test

import (
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

func environmentOf(vars map[string]string) telemetry.Environment {
	return telemetry.Environment{Getenv: func(name string) string { return vars[name] }, Console: io.Discard}
}

func TestVariablesTurnTracingOn(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, tc := range []struct {
		vars map[string]string
		on   bool
	}{
		{map[string]string{}, false},
		{map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, false},
		{map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "None"}, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}, false},
		// A disabled SDK does not disable the service, which refused to start.
		{map[string]string{"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "jaeger", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, false},
		// The specification has a default endpoint on localhost.
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true},
		{map[string]string{"OTEL_TRACES_EXPORTER": "OTLP", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true},
		{map[string]string{"OTEL_TRACES_EXPORTER": "console"}, true},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", endpoint: "unix:///run/collector.sock"}, true},
		// The variable of traces counts, and the console has no protocol.
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "GRPC"}, true},
		{map[string]string{"OTEL_TRACES_EXPORTER": "console", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"}, true},
		{map[string]string{"OTEL_TRACES_EXPORTER": "console", "OTEL_TRACES_SAMPLER": "always_on", "OTEL_TRACES_SAMPLER_ARG": "none of a ratio"}, true},
	} {
		tracing, err := telemetry.NewTracing(t.Context(), "queue-scheduler", "q-1", environmentOf(tc.vars))
		require.NoError(t, err, "%v", tc.vars)
		_, span := tracing.Provider.Tracer("test").Start(t.Context(), "x")
		require.Equal(t, tc.on, span.IsRecording(), "%v", tc.vars)
		require.NoError(t, tracing.Shutdown(t.Context()), "no span has ended, so there is nothing to send")
	}
}

func TestTracingRefusesWhatItCannotDo(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_TRACES_EXPORTER":                  "jaeger",
		"OTEL_EXPORTER_OTLP_PROTOCOL":           "http/json",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL":    "http/json",
		"OTEL_EXPORTER_OTLP_COMPRESSION":        "zstd",
		"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "GZIP", // the SDK sends uncompressed
		"OTEL_TRACES_SAMPLER":                   "jaeger_remote",
		"OTEL_PROPAGATORS":                      "tracecontext,b4",
	} {
		vars := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", name: value}
		_, err := telemetry.NewTracing(t.Context(), "s", "i", environmentOf(vars))
		require.ErrorIs(t, err, telemetry.ErrUnsupported, name)
		require.ErrorContains(t, err, name+"="+value)
	}
}

// The OpenTelemetry SDK logs such a value, secrets included, and sends spans to localhost, or all
// of them instead of few.
func TestTracingRefusesWhatItCannotRead(t *testing.T) {
	const endpoint, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for _, tc := range []struct {
		name string // of the variable that the error names
		vars map[string]string
	}{
		{endpoint, map[string]string{endpoint: "10.0.0.1:4317"}},
		{traces, map[string]string{endpoint: "http://127.0.0.1:1", traces: "http://me:s3cret@collector:port"}},
		{endpoint, map[string]string{endpoint: "collector:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}},
		{"OTEL_TRACES_SAMPLER_ARG", map[string]string{
			"OTEL_TRACES_EXPORTER": "console", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "5%",
		}},
		{"OTEL_TRACES_SAMPLER_ARG", map[string]string{
			"OTEL_TRACES_EXPORTER": "console", "OTEL_TRACES_SAMPLER": "TraceIDRatio", "OTEL_TRACES_SAMPLER_ARG": "5",
		}},
	} {
		_, err := telemetry.NewTracing(t.Context(), "s", "i", environmentOf(tc.vars))
		require.ErrorContains(t, err, tc.name, "%v", tc.vars)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// receiver is an OTLP collector that keeps what it gets, over gRPC and HTTP.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	t     *testing.T
	got   chan *collector.ExportTraceServiceRequest
	paths chan string // of HTTP requests
}

func newReceiver(t *testing.T) *receiver {
	return &receiver{t: t, got: make(chan *collector.ExportTraceServiceRequest, 1), paths: make(chan string, 1)}
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.got <- req
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	assert.Equal(r.t, http.MethodPost, req.Method)
	assert.Equal(r.t, "application/x-protobuf", req.Header.Get("Content-Type"))
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		zipped, err := gzip.NewReader(body)
		if !assert.NoError(r.t, err) {
			return
		}
		body = zipped
	}
	raw, err := io.ReadAll(body)
	assert.NoError(r.t, err)
	var sent collector.ExportTraceServiceRequest
	assert.NoError(r.t, proto.Unmarshal(raw, &sent))
	r.paths <- req.URL.Path
	r.got <- &sent
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// recordSpan records one span as the environment of the process has it.
func recordSpan(t *testing.T) {
	t.Helper()
	tracing, err := telemetry.NewTracing(t.Context(), "backup-runner", "b-1", telemetry.Environment{Getenv: os.Getenv, Console: io.Discard})
	require.NoError(t, err)
	_, span := tracing.Provider.Tracer("test").Start(t.Context(), "backup")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, tracing.Shutdown(ctx))
}

// requireSpan is about what trace has recorded.
func (r *receiver) requireSpan() {
	r.t.Helper()
	require.Len(r.t, r.got, 1, "a collector got no spans, or those of another protocol")
	spans := (<-r.got).GetResourceSpans()
	require.Len(r.t, spans, 1)
	require.Equal(r.t, "backup", spans[0].GetScopeSpans()[0].GetSpans()[0].GetName())
	attrs := map[string]string{}
	for _, kv := range spans[0].GetResource().GetAttributes() {
		attrs[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	require.Equal(r.t, "backup-runner", attrs["service.name"])
	require.Equal(r.t, "b-1", attrs["service.instance.id"])
}

func TestSpansReachTheCollector(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	rec := newReceiver(t)
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, rec)
	go func() { _ = server.Serve(lis) }()
	defer server.Stop()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+lis.Addr().String())

	recordSpan(t)
	rec.requireSpan()
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")
	recordSpan(t)
	rec.requireSpan()
}

// The protocol that the specification recommends is refused, where most collectors listen on port
// 4318 alone.
func TestSpansReachTheCollectorOverHTTP(t *testing.T) {
	for name, tc := range map[string]struct {
		endpoint, path string // variable, and path below the server
		vars           map[string]string
		want           string
	}{
		"all signals": {"OTEL_EXPORTER_OTLP_ENDPOINT", "/otel", map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "/otel/v1/traces"},
		"traces": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "/spans", map[string]string{
			"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
		}, "/spans"},
		"compressed": {"OTEL_EXPORTER_OTLP_ENDPOINT", "", map[string]string{
			"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_TRACES_EXPORTER": "otlp",
		}, "/v1/traces"},
		// The SDK alone would read both variables by itself: the body is protobuf, whatever the one
		// for all signals says.
		"letters": {"OTEL_EXPORTER_OTLP_ENDPOINT", "/", map[string]string{
			"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "HTTP/protobuf",
		}, "/v1/traces"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := newReceiver(t)
			server := httptest.NewServer(rec)
			defer server.Close()
			t.Setenv(tc.endpoint, server.URL+tc.path)
			for name, value := range tc.vars {
				t.Setenv(name, value)
			}
			recordSpan(t)
			rec.requireSpan()
			require.Equal(t, tc.want, <-rec.paths)
		})
	}
}
