package messaging_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/messaging"
)

// Later messages about an object belong to the trace of its admission, unless their publisher has
// one.
func TestAnObjectKeepsItsTrace(t *testing.T) {
	tracer := sdktrace.NewTracerProvider().Tracer("test")
	obj := &metav1.ObjectMeta{}
	messaging.SetTrace(t.Context(), obj)
	require.Empty(t, obj.Annotations, "no trace, nothing to keep")
	require.False(t, traceOf(messaging.WithTrace(t.Context(), obj)).IsValid())

	ctx, span := tracer.Start(t.Context(), "admit")
	messaging.SetTrace(ctx, obj)
	span.End()
	require.Equal(t, span.SpanContext().TraceID(), traceOf(messaging.WithTrace(t.Context(), obj)).TraceID())

	other, span2 := tracer.Start(t.Context(), "other")
	defer span2.End()
	require.Equal(t, span2.SpanContext().TraceID(), traceOf(messaging.WithTrace(other, obj)).TraceID())

	messaging.SetTrace(t.Context(), obj)
	require.NotContains(t, obj.Annotations, messaging.AnnotationTrace, "a note of another trace goes")
	obj.Annotations[messaging.AnnotationTrace] = "junk"
	require.False(t, traceOf(messaging.WithTrace(t.Context(), obj)).IsValid())
}

func traceOf(ctx context.Context) trace.SpanContext { return trace.SpanContextFromContext(ctx) }
