package messaging

import (
	"context"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

const tracerName = "github.com/holdfast-io/holdfast/pkg/messaging"

// Attribute names follow OpenTelemetry's messaging conventions (in development there).
var (
	attrSystem      = attribute.String("messaging.system", "nats")
	attrDestination = attribute.Key("messaging.destination.name")
	attrDelivery    = attribute.Key("messaging.nats.delivery_count")
	attrUID         = attribute.Key("holdfast.object.uid")
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

func (c *Client) startProducer(ctx context.Context, destination, uid string) (context.Context, func(error)) {
	ctx, s := c.tracer.Start(ctx, "publish "+destination, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attrSystem, attrDestination.String(destination), attrUID.String(uid)))
	return ctx, func(err error) { span.End(s, err) }
}

// startConsumer continues the publisher's trace: one backup is one trace from admission to commit.
// A redelivery is linked too, to distinguish it.
func (c *Client) startConsumer(ctx context.Context, destination, uid string, msg jetstream.Msg, deliveries uint64) (context.Context, func(error)) {
	ctx = propagator.Extract(ctx, headerCarrier(msg.Headers()))
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attrSystem, attrDestination.String(destination), attrUID.String(uid), attrDelivery.Int64(int64(deliveries))),
	}
	if remote := trace.SpanContextFromContext(ctx); remote.IsValid() && deliveries > 1 {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: remote}))
	}
	ctx, s := c.tracer.Start(ctx, "process "+destination, options...)
	return ctx, func(err error) { span.End(s, err) }
}

// AnnotationTrace keeps the trace of an object's admission (W3C traceparent), so that every hint
// for it belongs to one trace, whichever process publishes it.
const AnnotationTrace = "holdfast.io/traceparent"

const traceParent = "traceparent"

// SetTrace notes the trace of ctx on an object. Without one an older note goes: it came with a copy
// of another object, or from before tracing was switched off.
func SetTrace(ctx context.Context, obj metav1.Object) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	annotations := obj.GetAnnotations()
	if carrier[traceParent] == "" {
		delete(annotations, AnnotationTrace)
		obj.SetAnnotations(annotations)
		return
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationTrace] = carrier[traceParent]
	obj.SetAnnotations(annotations)
}

// WithTrace continues the trace noted on an object, unless ctx has one already.
func WithTrace(ctx context.Context, obj metav1.Object) context.Context {
	noted := obj.GetAnnotations()[AnnotationTrace]
	if noted == "" || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceParent: noted})
}
