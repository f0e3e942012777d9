package pluginhost_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/pluginhost"
)

func TestACertificateInTheHandshakeIsNotLookedAt(t *testing.T) {
	t.Parallel()
	cfg := config(binaries(t, "certified"))
	cfg.Limits = pluginhost.Limits{Stop: 100 * time.Millisecond}
	h, err := pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	require.Empty(t, h.Failures())
	require.NoError(t, callers["DeleteItemAction"](t, open(t, h), "echo"))
}

func TestAProcessThatAllowsNoStreamsIsAFailureInTime(t *testing.T) {
	t.Parallel()
	cfg := config(binaries(t, "streams-0", "streams-1"))
	cfg.Limits = pluginhost.Limits{Start: 2 * time.Second, Query: 2 * time.Second, Stop: 100 * time.Millisecond}
	h, err := pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	said := map[string]error{}
	for _, f := range h.Failures() {
		said[filepath.Base(f.Path)] = f.Err
	}
	require.Len(t, said, 2)
	require.ErrorIs(t, said["streams-0"], pluginhost.ErrStart)
	require.ErrorContains(t, said["streams-0"], "timeout while waiting for plugin to start")
	require.ErrorIs(t, said["streams-1"], pluginhost.ErrTimeout, "it starts, and then has no stream left for a call")
}
