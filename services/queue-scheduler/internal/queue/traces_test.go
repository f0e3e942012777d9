package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// A backup waits between two passes, perhaps of two replicas: what it carries keeps its trace
// together, and a copy of another object's note does not.
func TestOneTraceForEachObject(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	b := newBed(t, ledger.Limits{Backups: 1, Restores: 1}, interceptor.Funcs{})
	traced := func(c *queue.Config) { c.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)) }
	b.createBackup("first", 1, "ns1")
	b.runScheduler(traced)
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "first")
	copied := b.getBackup("first")
	waiting := &velerov1.Backup{ObjectMeta: objectMeta("second", 2), Spec: copied.Spec}
	waiting.Annotations = copied.Annotations
	require.NotEmpty(t, waiting.Annotations[messaging.AnnotationTrace])
	require.NoError(t, b.c.Create(t.Context(), waiting))
	b.requirePhase(velerov1.BackupPhaseQueued, "second")
	b.stop()
	b.setPhase("first", velerov1.BackupPhaseCompleted)
	b.createRestore("back", 3, "ns9")
	b.runScheduler(traced)
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "second")
	b.requireEventually("hint", func() bool { return b.wire.hasSent("restore.run back") })
	b.stop()

	first, second, restore := traceOf(t, spans, "queue backup", "first"), traceOf(t, spans, "queue backup", "second"), traceOf(t, spans, "validate restore", "back")
	require.NotEqual(t, first, second, "a copy is another backup")
	require.Equal(t, first, traceOf(t, spans, "admit backup", "first"))
	require.Equal(t, second, traceOf(t, spans, "admit backup", "second"))
	require.Equal(t, restore, traceOf(t, spans, "admit restore", "back"))
	require.Equal(t, second, trace.SpanContextFromContext(messaging.WithTrace(t.Context(), b.getBackup("second"))).TraceID())
	require.Equal(t, restore, trace.SpanContextFromContext(messaging.WithTrace(t.Context(), b.getRestore("back"))).TraceID())
}

// traceOf finds the one span of that name for an object.
func traceOf(t *testing.T, spans *tracetest.SpanRecorder, name, object string) trace.TraceID {
	t.Helper()
	var found []trace.TraceID
	for _, span := range spans.Ended() {
		for _, a := range span.Attributes() {
			if span.Name() == name && a.Key == "holdfast.object.name" && a.Value.AsString() == object {
				found = append(found, span.SpanContext().TraceID())
			}
		}
	}
	require.Len(t, found, 1, "%s %s", name, object)
	return found[0]
}
