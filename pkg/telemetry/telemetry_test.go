package telemetry_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewLogger(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, "warn", "json")
	require.NoError(t, err)
	log.Info("quiet")
	log.Warn("loud", "backup", "a")
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line), "one line only: %s", out.String())
	require.Equal(t, "loud", line["msg"])
	require.Equal(t, "a", line["backup"])

	_, err = telemetry.NewLogger(&out, "loud", "text")
	require.ErrorContains(t, err, `log level "loud"`)
	_, err = telemetry.NewLogger(&out, "info", "xml")
	require.ErrorContains(t, err, `log format "xml"`)
}
