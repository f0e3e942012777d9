// Package span begins and ends spans of traces in one way, so that every span that failed records
// why, and makes one span of many calls of one kind.
package span

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// End ends a span. Unless err is nil, it records err with its type, and its text is the span's
// status.
func End(s trace.Span, err error) {
	failSpan(s, err)
	s.End()
}

func failSpan(s trace.Span, err error) {
	if err == nil || !s.IsRecording() {
		return
	}
	s.RecordError(err)
	s.SetAttributes(semconv.ErrorType(err))
	s.SetStatus(codes.Error, err.Error())
}

const tracerName = "github.com/holdfast-io/holdfast/pkg/telemetry/span"

// tracerOf makes children of the span that ctx has; without one they are not recorded.
func tracerOf(ctx context.Context) trace.Tracer {
	return trace.SpanFromContext(ctx).TracerProvider().Tracer(tracerName)
}

// Do runs do within a child of the span that ctx has, and returns its error. Without a span there is
// none. Calls that do begins are children of the child, see [Begin]. A panic of do ends the span, and
// is not recovered.
func Do(ctx context.Context, name string, do func(context.Context) error, attributes ...attribute.KeyValue) (err error) {
	ctx, s := tracerOf(ctx).Start(ctx, name, trace.WithAttributes(attributes...))
	ctx, end := Group(ctx)
	done := false
	defer func() {
		end()
		if !done {
			s.SetStatus(codes.Error, "panicked")
		}
		End(s, err)
	}()
	err = do(ctx)
	done = true
	return err
}
