package telemetry

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// ErrUnsupported reports an OTEL_* variable that asks for something this build cannot do; the
// message names the variable.
var ErrUnsupported = errors.New("not supported")

// Propagator writes and reads trace context and baggage as W3C headers: what OTEL_PROPAGATORS is by
// default.
func Propagator() propagation.TextMapPropagator {
	return propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
}

// Tracing is a service's source of spans.
type Tracing struct {
	// Provider is never nil.
	Provider trace.TracerProvider
	// Propagator passes trace context on over gRPC, as OTEL_PROPAGATORS has it. It is never nil. What
	// passes it on to other services of Holdfast over NATS and on objects is W3C Trace Context, whatever
	// that has.
	Propagator propagation.TextMapPropagator
	// Shutdown sends what is left and stops. It returns at once when nothing is exported.
	Shutdown func(context.Context) error
}

// NewTracing sets up traces for one service from the OTEL_* variables (OpenTelemetry's environment
// specification) of env. No span is recorded with OTEL_SDK_DISABLED=true or
// OTEL_TRACES_EXPORTER=none, or without OTEL_TRACES_EXPORTER where no endpoint is set
// (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT). Spans go out in the
// background, over gRPC or HTTP or to env.Console; a collector that is away loses spans and nothing
// else. Endpoint, headers, TLS, sampler and batching are read by the OpenTelemetry SDK itself, from
// the environment of the process; values that it would not understand are errors that name the
// variable.
func NewTracing(ctx context.Context, service, instance string, env Environment) (Tracing, error) {
	exporter, err := newExporter(ctx, env)
	if err != nil {
		return Tracing{}, err
	}
	propagator, _ := env.newPropagator() // newExporter returned the error, where spans are exported
	if exporter == nil {
		return Tracing{Propagator: propagator, Provider: noop.NewTracerProvider(), Shutdown: func(context.Context) error { return nil }}, nil
	}
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(
			attribute.String("service.namespace", "holdfast"),
			attribute.String("service.name", service),
			attribute.String("service.instance.id", instance),
			attribute.String("service.version", Version()),
		), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return Tracing{}, errors.Join(fmt.Errorf("trace resource: %w", err), exporter.Shutdown(ctx))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return Tracing{Propagator: propagator, Provider: provider, Shutdown: provider.Shutdown}, nil
}

// newExporter returns the exporter that env configures, nil for none.
func newExporter(ctx context.Context, env Environment) (sdktrace.SpanExporter, error) {
	kind, err := env.exporterName()
	if err != nil || kind == exporterNone {
		return nil, err
	}
	protocol := ""
	if kind == exporterOTLP {
		if protocol, err = env.otlpProtocol(); err != nil {
			return nil, err
		}
	}
	if err := env.checkVariables(kind, protocol); err != nil {
		return nil, err
	}
	var exporter sdktrace.SpanExporter
	switch {
	case kind == exporterConsole:
		exporter, err = stdouttrace.New(stdouttrace.WithWriter(env.Console))
	case protocol == protocolHTTP:
		exporter, err = otlptracehttp.New(ctx, otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf))
	default:
		exporter, err = otlptracegrpc.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("trace exporter: %w", err)
	}
	return exporter, nil
}
