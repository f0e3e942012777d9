package span_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

func TestASpanThatFailedRecordsWhy(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	away := errors.New("the bucket is away")
	ctx, outer := tracer.Start(t.Context(), "outer")
	require.ErrorIs(t, span.Do(ctx, "inner", func(context.Context) error { return away }), away)
	require.Panics(t, func() {
		_ = span.Do(ctx, "panics", func(context.Context) error { panic("defect") })
	})
	span.End(outer, nil)
	require.NoError(t, span.Do(t.Context(), "untraced", func(context.Context) error { return nil }))
	spans := recorder.Ended()
	require.Len(t, spans, 3)
	inner, panics := spans[0], spans[1]
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "the bucket is away"}, inner.Status())
	require.Len(t, inner.Events(), 1)
	require.Equal(t, spans[2].SpanContext().SpanID(), inner.Parent().SpanID())
	require.Equal(t, codes.Unset, spans[2].Status().Code)
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "panicked"}, panics.Status())
}
