package pluginhost_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

func TestPluginCallsAreSpans(t *testing.T) {
	h := newVendorHost(t, nil)
	recorder := tracetest.NewSpanRecorder()
	ctx, job := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test").Start(t.Context(), "job")
	ctx, end := span.Group(ctx)
	s := h.Open(t.Context(), slog.New(slog.DiscardHandler)) // a session has no trace, its calls have
	defer s.Close()
	backup := theBackup(t)
	change, fails := actionNamed(t, s.BackupItems(), "test.io/change"), actionNamed(t, s.BackupItems(), "test.io/error")
	for range 20 {
		_, err := change.Execute(ctx, newPodObject(), backup)
		require.NoError(t, err)
	}
	_, err := fails.Execute(ctx, newPodObject(), backup)
	require.Error(t, err)
	_, err = fails.Execute(t.Context(), newPodObject(), backup)
	require.Error(t, err, "and no span")
	end()
	job.End()

	type found struct {
		name, plugin, binary, code string
		calls, failed              int64
		status                     codes.Code
	}
	var all []found
	for _, s := range recorder.Ended() {
		if s.Name() == "job" {
			continue
		}
		require.Equal(t, job.SpanContext().SpanID(), s.Parent().SpanID(), s.Name())
		f := found{name: s.Name(), status: s.Status().Code}
		for _, kv := range s.Attributes() {
			switch kv.Key {
			case "holdfast.plugin.name":
				f.plugin = kv.Value.AsString()
			case "server.address", "process.executable.name":
				f.binary = kv.Value.AsString()
			case "rpc.response.status_code":
				f.code = kv.Value.AsString()
			case "holdfast.calls.count":
				f.calls = kv.Value.AsInt64()
			case "holdfast.calls.failed":
				f.failed = kv.Value.AsInt64()
			case "rpc.system.name":
				require.Equal(t, "grpc", kv.Value.AsString())
			case "rpc.method":
				require.Equal(t, s.Name(), kv.Value.AsString())
			case "process.pid":
				require.Positive(t, kv.Value.AsInt64())
			}
		}
		if f.calls > 0 {
			require.Equal(t, trace.SpanKindClient, s.SpanKind())
		}
		all = append(all, f)
	}
	require.ElementsMatch(t, []found{
		{name: "start plugin process", binary: "vendor"},
		{name: "generated.BackupItemAction/Execute", plugin: "test.io/change", binary: "vendor", calls: 20},
		{name: "generated.BackupItemAction/Execute", plugin: "test.io/error", binary: "vendor", calls: 1, failed: 1, code: "UNKNOWN", status: codes.Error},
	}, all)
}
