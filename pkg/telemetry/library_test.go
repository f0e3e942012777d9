package telemetry_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

func TestLibrariesAreHeardOneLevelLower(t *testing.T) {
	write := func(level slog.Level) string {
		var out bytes.Buffer
		log := telemetry.Library(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))).WithName("lib").WithValues("a", 1)
		log.V(1).Info("detail")
		log.Info("worker started")
		log.Error(errors.New("no"), "worker failed")
		return out.String()
	}
	atInfo := write(slog.LevelInfo)
	require.NotContains(t, atInfo, "detail")
	require.NotContains(t, atInfo, "worker started")
	require.Contains(t, atInfo, `level=ERROR msg="worker failed"`)
	require.Contains(t, atInfo, "a=1")
	atDebug := write(slog.LevelDebug)
	require.Contains(t, atDebug, `level=DEBUG msg="worker started"`)
	require.NotContains(t, atDebug, "detail", "below debug")
}
