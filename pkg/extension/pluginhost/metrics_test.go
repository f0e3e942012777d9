package pluginhost_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

// Each call is in the metric once, by its code; what go-plugin calls by itself is not.
func TestPluginCallsAreTimed(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := newVendorHost(t, func(c *pluginhost.Config) { c.Metrics = registry })
	s := openSession(t, h)
	backup := theBackup(t)
	change, fails := actionNamed(t, s.BackupItems(), "test.io/change"), actionNamed(t, s.BackupItems(), "test.io/error")
	for range 3 {
		_, err := change.Execute(t.Context(), newPodObject(), backup)
		require.NoError(t, err)
	}
	_, err := fails.Execute(t.Context(), newPodObject(), backup)
	require.Error(t, err)

	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	require.Equal(t, "holdfast_plugin_call_seconds", families[0].GetName())
	executed := map[string]uint64{}
	for _, m := range families[0].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		require.Equal(t, "vendor", labels["plugin"])
		require.False(t, strings.HasPrefix(labels["method"], "plugin.") || strings.HasPrefix(labels["method"], "grpc."), labels["method"])
		if labels["method"] == "generated.BackupItemAction/Execute" {
			executed[labels["code"]] = m.GetHistogram().GetSampleCount()
			require.Positive(t, m.GetHistogram().GetSampleSum())
		}
	}
	require.Equal(t, map[string]uint64{"OK": 3, "Unknown": 1}, executed)
}
