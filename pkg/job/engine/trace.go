package engine

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

// attemptSpan is the span of an attempt at a job. It begins before the claim is written, so that the
// same write notes it on the object, and is dropped where the claim is not taken: a span that does
// not end is not exported.
type attemptSpan struct {
	span  trace.Span // nil before begin
	links []trace.Link
}

// beginSpan begins the span, once however often the write is tried: in the trace of the hint, else, as
// after a takeover, in the one noted on the object. It notes the span on the object, and is linked to
// the one that is noted there, of the attempt before.
func (e *Engine[T]) beginSpan(ctx context.Context, a *attemptSpan, o metav1.Object) {
	if a.span == nil {
		name, _, _ := strings.Cut(string(e.cfg.Work), ".")
		_, a.span = e.cfg.Tracer.Start(messaging.WithTrace(ctx, o), name)
	}
	if !a.span.IsRecording() {
		return
	}
	ctx = trace.ContextWithSpan(ctx, a.span)
	a.links = nil
	if before := messaging.Attempt(ctx, o); before.IsValid() {
		a.links = append(a.links, trace.Link{SpanContext: before, Attributes: []attribute.KeyValue{attribute.String("holdfast.link", "the attempt before")}})
	}
	messaging.SetAttempt(ctx, o)
}

// noteClaimed completes the span of an attempt whose claim was written.
func (a *attemptSpan) noteClaimed(o metav1.Object, mine claim.Claim) {
	for _, link := range a.links {
		a.span.AddLink(link)
	}
	a.span.SetAttributes(
		attribute.String("holdfast.object.name", o.GetName()),
		attribute.String("holdfast.object.uid", string(o.GetUID())),
		attribute.Int64("holdfast.claim.epoch", mine.Epoch),
	)
}

// noteTrace keeps the trace of the first claim on an object that no queue admitted: that of its hint,
// else of the attempt. Later attempts and hints continue it.
func (a *attemptSpan) noteTrace(ctx context.Context, o metav1.Object) {
	if o.GetAnnotations()[messaging.AnnotationTrace] != "" {
		return
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpan(ctx, a.span)
	}
	if trace.SpanContextFromContext(ctx).IsValid() {
		messaging.SetTrace(ctx, o)
	}
}

// traceAttempt returns the context of an attempt, and what ends its span with the error of the attempt.
func (h *Held[T]) traceAttempt(ctx context.Context) (context.Context, func(error)) {
	ctx, end := span.Group(trace.ContextWithSpan(ctx, h.span))
	return ctx, func(err error) {
		end()
		span.End(h.span, err)
	}
}
