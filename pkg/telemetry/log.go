// Package telemetry sets up what services report about themselves: logs through log/slog, traces
// through OpenTelemetry, and the version and commit of the binary. It keeps the credentials of URLs out
// of texts that people read.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Formats of NewLogger.
const (
	// FormatText is key=value lines.
	FormatText = "text"
	// FormatJSON is one JSON object per line.
	FormatJSON = "json"
)

// NewLogger returns a logger that writes to w in the format text or json, from level debug, info,
// warn or error on. The error names the setting, not a flag.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	lvl, err := ParseLevel(level)
	if err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: lvl}
	switch format {
	case FormatText:
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case FormatJSON:
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("log format %q: must be text or json", format)
}

// ParseLevel reads debug, info, warn or error.
func ParseLevel(level string) (slog.Level, error) {
	switch level {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("log level %q: must be debug, info, warn or error", level)
}

// AdoptProcess sends what libraries log through their own process-wide loggers (klog,
// controller-runtime, OpenTelemetry) to log. It is called once, by a main.
func AdoptProcess(log *slog.Logger) {
	quiet := log.With("component", "library")
	logger := Library(quiet)
	klog.SetLogger(logger)
	ctrl.SetLogger(logger)
	otel.SetLogger(logger)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		quiet.Warn("Failed to deliver telemetry", "error", err)
	}))
}
