package schedule

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// A leader whose clock is two hours fast takes slots that have not come and writes lastBackup and
// lastSkipped into the future: the leader after it makes no backup until that time has come.
func TestAFastClockWritesNoFutureTime(t *testing.T) {
	b := newBed(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", b.clock.Now().UTC().Format(http.TimeFormat))
	}))
	defer server.Close()
	fast := clocktesting.NewFakeClock(start.Add(2 * time.Hour))
	now := kube.NewServerClock(fast)
	answer := func() {
		resp, err := now.Wrap(server.Client().Transport).RoundTrip(mustValue(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	b.createSchedule("hourly", "0 * * * *", nil)
	b.createSchedule("skips", "0 * * * *", func(s *velerov1.Schedule) { s.Spec.SkipImmediately = ptr.To(true) })
	s := b.newScheduler(interceptor.Funcs{})
	s.Clock, s.Now = fast, now.Now
	answer()
	next := b.runPass(s, 0)
	require.Empty(t, b.backupNames(), "no slot has come")
	require.Equal(t, start, b.getSchedule("skips").Status.LastSkipped.UTC())
	require.Equal(t, 15*time.Second, s.waitUntil(next), "and it does not spin until one does")

	b.clock.Step(time.Hour)
	fast.Step(time.Hour)
	answer()
	b.runPass(s, 0)
	require.Equal(t, []string{"hourly-20260506080000", "skips-20260506080000"}, b.backupNames())
	for _, name := range []string{"hourly", "skips"} {
		require.False(t, b.getSchedule(name).Status.LastBackup.After(b.clock.Now()))
	}
}

func mustValue[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
