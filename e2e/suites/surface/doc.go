// Package surface holds tests that look at the running services with the tools other people use:
// grpcurl for the RPCs, kubectl for the custom resources, and an OpenTelemetry collector for the
// traces.
package surface
