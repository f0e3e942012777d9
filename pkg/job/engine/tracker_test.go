package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// pauses lets a job fail in that way, again and again, as soon as it may, and returns how long it
// rested each time.
func pauses(w *tracker, clock *clocktesting.FakeClock, times int, err error) (all []time.Duration) {
	for range times {
		w.finish("u", err)
		pause := w.backoff("u")
		all = append(all, pause)
		clock.Step(pause)
	}
	return all
}

func TestPausesAfterPanicsGrowToAnHour(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	w := newTracker(clock)
	require.Equal(t, []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second},
		pauses(w, clock, 5, &panicError{"a defect"}))
	require.Equal(t, time.Hour, pauses(w, clock, 70, &panicError{"a defect"})[69])
	n, value := w.panics("u")
	require.Equal(t, 75, n)
	require.Equal(t, "a defect", value)
}

func TestPausesAfterOtherFailuresStay(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	w := newTracker(clock)
	require.Equal(t, []time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Second}, pauses(w, clock, 3, errors.New("away")))
	w.panics("u")
	require.Empty(t, w.failed, "what is over is forgotten")
}

func TestPanicsInARowAreCounted(t *testing.T) {
	for name, between := range map[string]error{"an attempt succeeds": nil, "another instance has the job": &claim.HeldError{}} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(0, 0))
			w := newTracker(clock)
			pauses(w, clock, 3, &panicError{"a defect"})
			pauses(w, clock, 1, errors.New("away"))
			n, _ := w.panics("u")
			require.Equal(t, 3, n, "an outage says nothing about the defect")
			pauses(w, clock, 1, between)
			n, _ = w.panics("u")
			require.Zero(t, n)
			require.Zero(t, w.panicBackoff("u"))
		})
	}
}

func TestAPanicIsForgottenWithItsJob(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	w := newTracker(clock)
	w.finish("u", &panicError{"a defect"})
	clock.Step(failureBackoff + maxBackoff - 1)
	n, _ := w.panics("u")
	require.Equal(t, 1, n)
	clock.Step(1)
	w.panics("other")
	require.Empty(t, w.failed)
}
