package queue

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

// jobTraces makes the spans of jobs.
type jobTraces struct{ tracer trace.Tracer }

// beginTrace starts the trace of an object: a root of its own. A trace noted on it already (a copy of
// another object carries the other's) is only linked.
func (t *jobTraces) beginTrace(ctx context.Context, what string, obj metav1.Object) (context.Context, func(error)) {
	options := []trace.SpanStartOption{trace.WithNewRoot()}
	if noted := trace.SpanContextFromContext(messaging.WithTrace(ctx, obj)); noted.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: noted}))
	}
	return t.startSpan(ctx, what, obj, options...)
}

// resumeTrace continues the trace noted on an object.
func (t *jobTraces) resumeTrace(ctx context.Context, what string, obj metav1.Object) (context.Context, func(error)) {
	return t.startSpan(messaging.WithTrace(ctx, obj), what, obj)
}

// startSpan returns what ends it, with the error that ended the work.
func (t *jobTraces) startSpan(ctx context.Context, what string, obj metav1.Object, options ...trace.SpanStartOption) (context.Context, func(error)) {
	options = append(options, trace.WithAttributes(
		attribute.String("holdfast.object.name", obj.GetName()), attribute.String("holdfast.object.uid", string(obj.GetUID())),
	))
	ctx, s := t.tracer.Start(ctx, what, options...)
	return ctx, func(err error) { span.End(s, err) }
}
