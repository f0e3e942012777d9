package engine

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/messaging"
)

// traced begins the span of an attempt at a job: in the trace of the hint, else, as after a
// takeover, in the one noted on the object. The job's log entries have the trace's id.
func (e *Engine[T]) traced(ctx context.Context, h *Held[T]) (context.Context, trace.Span) {
	name, _, _ := strings.Cut(string(e.cfg.Work), ".")
	ctx, s := e.cfg.Tracer.Start(messaging.WithTrace(ctx, h.Object), name, trace.WithAttributes(
		attribute.String("holdfast.object.name", h.Object.GetName()),
		attribute.String("holdfast.object.uid", string(h.Object.GetUID())),
		attribute.Int64("holdfast.claim.epoch", h.Claim.Epoch),
	))
	if id := s.SpanContext(); id.HasTraceID() {
		h.Log = h.Log.With("traceId", id.TraceID().String())
	}
	return ctx, s
}

// noteTrace keeps the trace of the first claim on an object that no queue admitted: later attempts
// and hints continue it.
func noteTrace(ctx context.Context, o metav1.Object) {
	if o.GetAnnotations()[messaging.AnnotationTrace] == "" && trace.SpanContextFromContext(ctx).IsValid() {
		messaging.SetTrace(ctx, o)
	}
}
