package telemetry

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel/propagation"
)

// Values of OTEL_TRACES_EXPORTER.
const (
	exporterOTLP    = "otlp"
	exporterConsole = "console"
	exporterNone    = "none"
)

// Values of OTEL_EXPORTER_OTLP_PROTOCOL.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// Variables of which the first that is set counts: that of traces, then that of all signals.
var (
	endpointVars    = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}
	protocolVars    = []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"}
	compressionVars = []string{"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"}
)

// samplers are the samplers of the OpenTelemetry SDK.
var samplers = []string{
	"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
}

// Environment is where a service finds the OTEL_* variables, and its standard output.
type Environment struct {
	// Getenv looks up one variable; an empty one counts as unset.
	Getenv func(string) string
	// Console gets the spans of OTEL_TRACES_EXPORTER=console, one JSON object per Write. Several
	// services may share it: it must allow concurrent calls then.
	Console io.Writer
}

// readVariable returns a value without the space around it.
func (e Environment) readVariable(name string) string { return strings.TrimSpace(e.Getenv(name)) }

// firstSet returns the first of the named variables that is set, and its name.
func (e Environment) firstSet(names []string) (name, value string) {
	for _, name := range names {
		if value := e.readVariable(name); value != "" {
			return name, value
		}
	}
	return names[0], ""
}

// isDisabled reports whether OTEL_SDK_DISABLED is true, in any case of letters as the specification
// has it; then no other variable counts.
func (e Environment) isDisabled() bool {
	return strings.EqualFold(e.readVariable("OTEL_SDK_DISABLED"), "true")
}

// exporterName returns where spans go. Without OTEL_TRACES_EXPORTER they go over OTLP when an endpoint
// is set, and are not recorded otherwise.
func (e Environment) exporterName() (string, error) {
	if e.isDisabled() {
		return exporterNone, nil
	}
	const name = "OTEL_TRACES_EXPORTER"
	value := e.readVariable(name)
	if value != "" {
		return parseChoice(name, value, exporterOTLP, exporterConsole, exporterNone)
	}
	if _, endpoint := e.firstSet(endpointVars); endpoint != "" {
		return exporterOTLP, nil
	}
	return exporterNone, nil
}

// otlpProtocol returns how OTLP is spoken, grpc where nothing is set.
func (e Environment) otlpProtocol() (string, error) {
	name, value := e.firstSet(protocolVars)
	if value == "" {
		return protocolGRPC, nil
	}
	return parseChoice(name, value, protocolGRPC, protocolHTTP)
}

// checkVariables refuses what the OpenTelemetry SDK would replace by a default of its own, and the spans
// would go elsewhere or be others than asked for: it reads these variables itself.
func (e Environment) checkVariables(exporter, protocol string) error {
	if exporter == exporterNone {
		return nil
	}
	_, err := e.newPropagator()
	errs := []error{err, e.checkSampler()}
	if exporter == exporterOTLP {
		if name, value := e.firstSet(compressionVars); value != "" && value != "gzip" && value != "none" {
			errs = append(errs, unsupportedError(name, value, "gzip", "none"))
		}
		name, value := e.firstSet(endpointVars)
		errs = append(errs, checkEndpoint(name, value, protocol))
	}
	return errors.Join(errs...)
}

// newPropagator returns how trace context is passed on over gRPC: as OTEL_PROPAGATORS lists it, else,
// and beside an error, as Propagator does.
func (e Environment) newPropagator() (propagation.TextMapPropagator, error) {
	const name = "OTEL_PROPAGATORS"
	value := e.readVariable(name)
	if value == "" {
		return Propagator(), nil
	}
	names := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
	listed, err := autoprop.TextMapPropagator(names...)
	if err != nil {
		return Propagator(), fmt.Errorf("%s=%s: %w: %w", name, value, ErrUnsupported, err)
	}
	return listed, nil
}

func (e Environment) checkSampler() error {
	const name, argName = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	value := e.readVariable(name)
	if value == "" {
		return nil
	}
	sampler, err := parseChoice(name, value, samplers...)
	if err != nil {
		return err
	}
	if arg := e.readVariable(argName); arg != "" && strings.HasSuffix(sampler, "traceidratio") {
		if ratio, err := strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return fmt.Errorf("%s=%s: must be a number from 0 to 1", argName, arg)
		}
	}
	return nil
}

// checkEndpoint does not repeat the value, which may hold a password. Over gRPC an endpoint may
// also be a target of gRPC (dns:, unix:).
func checkEndpoint(name, value, protocol string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme == "" {
		return fmt.Errorf("%s: must be a URL such as http://collector:4317", name)
	}
	if protocol == protocolHTTP && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("%s: must be a URL such as http://collector:4318 for %s", name, protocolHTTP)
	}
	return nil
}

// parseChoice returns which of the known values is meant; the case of letters does not matter.
func parseChoice(name, value string, known ...string) (string, error) {
	if lower := strings.ToLower(value); slices.Contains(known, lower) {
		return lower, nil
	}
	return "", unsupportedError(name, value, known...)
}

func unsupportedError(name, value string, known ...string) error {
	last := len(known) - 1
	return fmt.Errorf("%s=%s: %w, use %s or %s", name, value, ErrUnsupported, strings.Join(known[:last], ", "), known[last])
}
