// Package span begins and ends spans of traces in one way, so that every span that failed records
// why.
package span

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// End ends a span. Unless err is nil, it records err, and its text is the span's status.
func End(s trace.Span, err error) {
	if err != nil {
		s.RecordError(err)
		s.SetStatus(codes.Error, err.Error())
	}
	s.End()
}

const tracerName = "github.com/holdfast-io/holdfast/pkg/telemetry/span"

// Do runs do within a child of the span that ctx has, and returns its error. Without a span there is
// none. A panic of do ends the span, and is not recovered.
func Do(ctx context.Context, name string, do func(context.Context) error) (err error) {
	ctx, s := trace.SpanFromContext(ctx).TracerProvider().Tracer(tracerName).Start(ctx, name)
	done := false
	defer func() {
		if !done {
			s.SetStatus(codes.Error, "panicked")
		}
		End(s, err)
	}()
	err = do(ctx)
	done = true
	return err
}
