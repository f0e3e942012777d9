package location_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

// validationSteps is a clock on which two seconds pass before each reading.
type validationSteps struct {
	clocktesting.SimpleIntervalClock
}

// Since implements clock.PassiveClock.
func (s *validationSteps) Since(earlier time.Time) time.Duration { return s.Now().Sub(earlier) }

// Every call is in the metric once, with the time that it took; what is absent or exists is an
// answer.
func TestCallsOfStoresAreTimed(t *testing.T) {
	registry := prometheus.NewRegistry()
	tick := &validationSteps{clocktesting.SimpleIntervalClock{Time: time.Unix(0, 0), Duration: 2 * time.Second}}
	loc, _ := fileLocation(t)
	store, err := location.New(fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(), namespace, location.WithMetrics(registry, tick)).Open(t.Context(), loc)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	ctx := t.Context()
	require.NoError(t, objectstore.CreateBytes(ctx, store, "backups/b/x", []byte("x")))
	require.ErrorIs(t, objectstore.CreateBytes(ctx, store, "backups/b/x", nil), objectstore.ErrExists)
	_, err = store.Stat(ctx, "backups/b/absent")
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	_, err = store.Stat(ctx, "../elsewhere")
	require.Error(t, err)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = store.Stat(cancelled, "backups/b/x")
	require.ErrorIs(t, err, context.Canceled)

	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	require.Equal(t, "holdfast_store_call_seconds", families[0].GetName())
	calls := map[string]uint64{}
	for _, m := range families[0].GetMetric() {
		require.Len(t, m.GetLabel(), 2)
		call, h := m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue(), m.GetHistogram()
		calls[call] = h.GetSampleCount()
		require.InDelta(t, 2*h.GetSampleCount(), h.GetSampleSum(), 0.001, "seconds, by the clock: %s", call)
	}
	require.Equal(t, map[string]uint64{"create done": 2, "stat done": 1, "stat failed": 1, "stat cancelled": 1}, calls)
}
