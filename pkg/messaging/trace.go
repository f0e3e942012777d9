package messaging

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

const tracerName = "github.com/holdfast-io/holdfast/pkg/messaging"

// Attributes beside those of OpenTelemetry's semantic conventions for messaging, which name no
// system nats.
var (
	attrSystem   = semconv.MessagingSystemKey.String("nats")
	attrDelivery = attribute.Key("messaging.nats.delivery_count")
	attrUID      = attribute.Key("holdfast.object.uid")
)

var propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// headerCarrier writes keys as they are: NATS headers are case-sensitive, W3C names lower-case, and
// the carrier for HTTP would capitalise them.
type headerCarrier nats.Header

// Get implements propagation.TextMapCarrier.
func (h headerCarrier) Get(key string) string {
	if v := h[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (h headerCarrier) Set(key, value string) { h[key] = []string{value} }

// Keys implements propagation.TextMapCarrier.
func (h headerCarrier) Keys() []string { return slices.Sorted(maps.Keys(h)) }

func (c *Client) startProducer(ctx context.Context, destination, uid string, size int) (context.Context, func(error)) {
	ctx, s := c.tracer.Start(ctx, "publish "+destination, trace.WithSpanKind(trace.SpanKindProducer))
	if s.IsRecording() {
		s.SetAttributes(c.messageAttributes(destination, uid, size)...)
		s.SetAttributes(semconv.MessagingOperationName("publish"), semconv.MessagingOperationTypeSend)
	}
	return ctx, func(err error) { span.End(s, err) }
}

// startConsumer continues the publisher's trace: one backup is one trace from admission to commit.
// A redelivery is linked too, to distinguish it.
func (c *Client) startConsumer(ctx context.Context, destination, uid string, msg jetstream.Msg, deliveries uint64) (context.Context, func(error)) {
	ctx = propagator.Extract(ctx, headerCarrier(msg.Headers()))
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
	if remote := trace.SpanContextFromContext(ctx); remote.IsValid() && deliveries > 1 {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: remote}))
	}
	ctx, s := c.tracer.Start(ctx, "process "+destination, options...)
	if s.IsRecording() {
		s.SetAttributes(c.messageAttributes(destination, uid, len(msg.Data()))...)
		s.SetAttributes(semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess, attrDelivery.Int64(int64(deliveries)))
	}
	return ctx, func(err error) { span.End(s, err) }
}

// messageAttributes are what spans about a message have in common. Its destination is the kind of work: the
// subject, which ends in the UID of an object, is one of too many.
func (c *Client) messageAttributes(destination, uid string, size int) []attribute.KeyValue {
	found := []attribute.KeyValue{
		attrSystem, attrUID.String(uid), semconv.MessagingDestinationName(destination),
		semconv.MessagingClientID(c.cfg.Name), semconv.MessagingMessageBodySize(size),
	}
	server, err := url.Parse(c.conn.ConnectedUrl())
	if err != nil || server.Hostname() == "" { // not connected
		return found
	}
	found = append(found, semconv.ServerAddress(server.Hostname()))
	if port, err := strconv.Atoi(server.Port()); err == nil {
		found = append(found, semconv.ServerPort(port))
	}
	return found
}

// AnnotationTrace keeps the trace of an object's admission (W3C traceparent), so that every hint
// for it belongs to one trace, whichever process publishes it.
const AnnotationTrace = "holdfast.io/traceparent"

// AnnotationAttempt keeps the span of the newest attempt at an object's job (W3C traceparent), to
// which the next attempt, such as one of another process that takes over, is linked.
const AnnotationAttempt = "holdfast.io/attempt-traceparent"

const traceParent = "traceparent"

// SetTrace notes the trace of ctx on an object. Without one an older note goes: it came with a copy
// of another object, or from before tracing was switched off.
func SetTrace(ctx context.Context, obj metav1.Object) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		annotations := obj.GetAnnotations()
		delete(annotations, AnnotationTrace)
		obj.SetAnnotations(annotations)
		return
	}
	noteSpan(ctx, obj, AnnotationTrace)
}

// noteSpan writes the span of ctx into an annotation.
func noteSpan(ctx context.Context, obj metav1.Object, annotation string) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotation] = carrier[traceParent]
	obj.SetAnnotations(annotations)
}

// notedSpan is the span that an annotation names, not valid for none.
func notedSpan(ctx context.Context, obj metav1.Object, annotation string) trace.SpanContext {
	carrier := propagation.MapCarrier{traceParent: obj.GetAnnotations()[annotation]}
	// Extract returns its context where the annotation cannot be read: that has no span here.
	ctx = propagation.TraceContext{}.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), carrier)
	return trace.SpanContextFromContext(ctx)
}

// WithTrace continues the trace noted on an object, unless ctx has one already.
func WithTrace(ctx context.Context, obj metav1.Object) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	found := notedSpan(ctx, obj, AnnotationTrace)
	if !found.IsValid() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, found)
}

// SetAttempt notes the span of ctx on an object as that of the newest attempt at its job.
func SetAttempt(ctx context.Context, obj metav1.Object) { noteSpan(ctx, obj, AnnotationAttempt) }

// Attempt is the span of the attempt noted on an object that is in the trace of ctx: a note of
// another trace came with a copy of another object. It is not valid without one.
func Attempt(ctx context.Context, obj metav1.Object) trace.SpanContext {
	found := notedSpan(ctx, obj, AnnotationAttempt)
	if found.TraceID() != trace.SpanContextFromContext(ctx).TraceID() {
		return trace.SpanContext{}
	}
	return found
}
