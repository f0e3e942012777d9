package pluginhost_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
)

func TestAProcessThatAllowsNoStreamsIsAFailureInTime(t *testing.T) {
	t.Parallel()
	failure := func(name string, limits pluginhost.Limits) error {
		cfg := shortLimitsConfig(selfplugin.Directory(t, name))
		cfg.Limits = limits
		h, err := pluginhost.New(t.Context(), cfg)
		require.NoError(t, err)
		require.Len(t, h.Failures(), 1)
		return h.Failures()[0]
	}
	err := failure("streams-0", pluginhost.Limits{Start: 2 * time.Second, Stop: 100 * time.Millisecond})
	require.ErrorIs(t, err, pluginhost.ErrStart)
	require.ErrorContains(t, err, "timeout while waiting for plugin to start")
	err = failure("streams-1", pluginhost.Limits{Query: 2 * time.Second, Stop: 100 * time.Millisecond})
	require.ErrorIs(t, err, pluginhost.ErrTimeout, "it starts, and then has no stream left for a call")
}
