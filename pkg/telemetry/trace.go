package telemetry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-io/holdfast/pkg/buildinfo"
)

// ErrUnsupported reports an OTEL_* variable that asks for something this build cannot do; the message names the variable.
var ErrUnsupported = errors.New("not supported")

// Propagator writes and reads trace context and baggage as W3C headers.
func Propagator() propagation.TextMapPropagator {
	return propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
}

// Tracing is a service's source of spans.
type Tracing struct {
	// Provider is never nil.
	Provider trace.TracerProvider
	// Shutdown sends what is left and stops. It returns at once when nothing is exported.
	Shutdown func(context.Context) error
}

// NewTracing sets up traces for one service from the OTEL_* variables (OpenTelemetry's environment specification), which getenv
// looks up. Without OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, or with OTEL_SDK_DISABLED=true or
// OTEL_TRACES_EXPORTER=none, no span is recorded. Spans go out in the background over gRPC; a collector that is away loses
// spans and nothing else. Endpoint, headers, TLS, sampler and batching are read by the OpenTelemetry SDK itself.
func NewTracing(ctx context.Context, service, instance string, getenv func(string) string) (Tracing, error) {
	if !disabled(getenv) {
		if err := checkEnv(getenv); err != nil {
			return Tracing{}, err
		}
	}
	if !exportWanted(getenv) {
		return Tracing{Provider: noop.NewTracerProvider(), Shutdown: func(context.Context) error { return nil }}, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return Tracing{}, fmt.Errorf("trace exporter: %w", err)
	}
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(
			attribute.String("service.namespace", "holdfast"),
			attribute.String("service.name", service),
			attribute.String("service.instance.id", instance),
			attribute.String("service.version", buildinfo.Version()),
		), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return Tracing{}, errors.Join(fmt.Errorf("trace resource: %w", err), exporter.Shutdown(ctx))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return Tracing{Provider: provider, Shutdown: provider.Shutdown}, nil
}

// disabled tells whether OTEL_SDK_DISABLED is true, in any case of letters as the specification has it; then no other variable counts.
func disabled(getenv func(string) string) bool {
	return strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true")
}

func exportWanted(getenv func(string) string) bool {
	if disabled(getenv) || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

func checkEnv(getenv func(string) string) error {
	if v := getenv("OTEL_TRACES_EXPORTER"); v != "" && v != "otlp" && v != "none" {
		return fmt.Errorf("OTEL_TRACES_EXPORTER=%s: %w, use otlp or none", v, ErrUnsupported)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"} {
		if v := getenv(name); v != "" && v != "grpc" {
			return fmt.Errorf("%s=%s: %w, use grpc", name, v, ErrUnsupported)
		}
	}
	return nil
}
