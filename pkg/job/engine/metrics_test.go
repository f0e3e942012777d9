package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/engine"
)

// counterValue is the value of the one series of a metric, whose label has to be the kind of the jobs.
func counterValue(b *bed, registry *prometheus.Registry, name string) float64 {
	b.Helper()
	families, err := registry.Gather()
	require.NoError(b, err)
	for _, f := range families {
		if f.GetName() == name {
			require.Len(b, f.GetMetric(), 1)
			m := f.GetMetric()[0]
			require.Equal(b, "ConfigMap", m.GetLabel()[0].GetValue())
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	require.FailNow(b, "no metric "+name)
	return 0
}

// A job of a process that died is a takeover; one that was begun, or released by a process that
// stopped, is none.
func TestTakeoversAreCounted(t *testing.T) {
	const takeovers, running = "holdfast_job_takeovers_total", "holdfast_jobs_running"
	inBubble(t, func(b *bed) {
		registries := map[string]*prometheus.Registry{"one": prometheus.NewRegistry(), "two": prometheus.NewRegistry(), "three": prometheus.NewRegistry()}
		start := func(name string) *replica {
			return b.startReplica(name, &kind{run: func(ctx context.Context, _ *engine.Held[*job]) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}}, func(c *engine.Config[*job]) { c.Metrics = registries[name] })
		}
		one := start("one")
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		require.Zero(b, counterValue(b, registries["one"], takeovers), "it was begun")
		require.InDelta(b, 1, counterValue(b, registries["one"], running), 0)
		two := start("two")
		one.kill()
		b.requireRunsAfter(2*timeout, "one/j@1", "two/j@2")
		require.InDelta(b, 1, counterValue(b, registries["two"], takeovers), 0)
		start("three")
		two.stop()
		b.requireRunsAfter(engine.Period, "one/j@1", "two/j@2", "three/j@3")
		require.InDelta(b, 1, counterValue(b, registries["two"], takeovers), 0)
		require.Zero(b, counterValue(b, registries["two"], running))
		require.Zero(b, counterValue(b, registries["three"], takeovers), "it was released")
	})
}
