package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// written is a span on the console.
type written struct {
	Name     string
	Resource []struct {
		Key   string
		Value struct{ Value any }
	}
}

// recordSpans records n spans with the OTEL_* variables of the process, and returns what is on the
// console after wait.
func recordSpans(t *testing.T, n int, wait func(written func() int)) []written {
	t.Helper()
	t.Setenv("OTEL_TRACES_EXPORTER", "console")
	var out lockedBuffer
	tracing, err := telemetry.NewTracing(t.Context(), "backup-runner", "b-1", telemetry.Environment{Getenv: os.Getenv, Console: &out})
	require.NoError(t, err)
	for range n {
		_, s := tracing.Provider.Tracer("test").Start(t.Context(), "x", oteltrace.WithNewRoot())
		s.End()
	}
	if wait != nil {
		wait(func() int { return len(out.decodeSpans(t)) })
	}
	require.NoError(t, tracing.Shutdown(context.WithoutCancel(t.Context())))
	return out.decodeSpans(t)
}

func (s written) resourceAttributes() map[string]any {
	found := map[string]any{}
	for _, kv := range s.Resource {
		found[kv.Key] = kv.Value.Value
	}
	return found
}

func TestTheResourceIsWhatTheVariablesSay(t *testing.T) {
	require.Equal(t, "backup-runner", recordSpans(t, 1, nil)[0].resourceAttributes()["service.name"])
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging,service.name=from-attributes")
	r := recordSpans(t, 1, nil)[0].resourceAttributes()
	require.Equal(t, "staging", r["deployment.environment.name"])
	require.Equal(t, "from-attributes", r["service.name"])
	require.Equal(t, "b-1", r["service.instance.id"])
	t.Setenv("OTEL_SERVICE_NAME", "backups")
	require.Equal(t, "backups", recordSpans(t, 1, nil)[0].resourceAttributes()["service.name"], "it goes before OTEL_RESOURCE_ATTRIBUTES")
}

func TestTheSamplerIsWhatTheVariablesSay(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
	const n = 1000 // fewer than the queue takes; 250 ± 100 is more than seven standard deviations
	require.InDelta(t, n/4, len(recordSpans(t, n, nil)), 100)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	require.Empty(t, recordSpans(t, 1, nil))
}

func TestBatchesAreWhatTheVariablesSay(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "3")
	recordSpans(t, 3, func(written func() int) {
		require.Eventually(t, func() bool { return written() == 3 }, time.Minute, time.Millisecond, "a full batch does not wait for its time")
	})
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	recordSpans(t, 3, func(written func() int) {
		require.Eventually(t, func() bool { return written() == 3 }, time.Minute, time.Millisecond, "a short delay")
	})
}

func TestThePropagatorIsWhatTheVariableSays(t *testing.T) {
	for value, want := range map[string][]string{
		"":                      {"traceparent", "tracestate", "baggage"},
		"tracecontext, baggage": {"traceparent", "tracestate", "baggage"},
		"tracecontext":          {"traceparent", "tracestate"},
		"baggage":               {"baggage"},
		"none":                  nil,
		"b3,baggage":            {"b3", "baggage"},
	} {
		tracing, err := telemetry.NewTracing(t.Context(), "s", "i", environmentOf(map[string]string{"OTEL_PROPAGATORS": value, "OTEL_TRACES_EXPORTER": "console"}))
		require.NoError(t, err)
		require.ElementsMatch(t, want, tracing.Propagator.Fields(), value)
		require.NoError(t, tracing.Shutdown(t.Context()))
	}
	tracing, err := telemetry.NewTracing(t.Context(), "s", "i", environmentOf(map[string]string{"OTEL_PROPAGATORS": "b4"}))
	require.NoError(t, err, "without traces it does not count")
	require.IsType(t, propagation.NewCompositeTextMapPropagator(), tracing.Propagator)
}

// lockedBuffer is written by the batcher while the test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// decodeSpans decodes one object for each span.
func (b *lockedBuffer) decodeSpans(t *testing.T) []written {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []written
	decoder := json.NewDecoder(bytes.NewReader(b.text.Bytes()))
	for {
		var s written
		err := decoder.Decode(&s)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, s)
	}
}
