package count

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// A series exists at zero for each Schedule, also of a metric that comes later, and goes with it.
func TestSeriesComeAndGoWithTheirSchedule(t *testing.T) {
	s := NewSchedules(prometheus.NewRegistry())
	early := s.Counter("early_total", "Early.")
	require.Equal(t, 1, testutil.CollectAndCount(early), "of jobs without a schedule")
	s.exists("daily")
	s.exists("weekly")
	late := s.Counter("late_total", "Late.")
	durations := s.durations("late_seconds", "Late.")
	csi := s.perBackup("late_snapshots_total", "Late.")
	for _, c := range []prometheus.Collector{early, late, durations, csi} {
		require.Equal(t, 3, testutil.CollectAndCount(c))
	}
	early.WithLabelValues("daily").Inc()
	s.exists("daily")
	require.InDelta(t, 1, testutil.ToFloat64(early.WithLabelValues("daily")), 0, "an event about a schedule changes no number")
	s.gone("daily")
	s.gone("never was")
	for _, c := range []prometheus.Collector{early, late, durations, csi} {
		require.Equal(t, 2, testutil.CollectAndCount(c))
	}
	require.NoError(t, s.Err())
}
