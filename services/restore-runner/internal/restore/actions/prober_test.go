package actions_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/actions"
)

// answers is an action that counts its calls and returns what the test sends.
type answers struct {
	calls int
	ready chan bool
}

// Ready ignores the end of its context, as a plugin may.
func (a *answers) Ready(context.Context, []action.Item, *action.Restore) (bool, error) {
	a.calls++
	return <-a.ready, nil
}

// startProbe starts a prober with one probe, which has called the action once.
func startProbe(t *testing.T, timeout time.Duration) (a *answers, q *actions.Probe, clock *clocktesting.FakeClock, woken chan int32) {
	t.Helper()
	a = &answers{ready: make(chan bool)}
	q = &actions.Probe{Node: 7, Action: "example.io/wait", Readiness: a, Timeout: timeout}
	clock, woken = clocktesting.NewFakeClock(time.Unix(0, 0)), make(chan int32, 10)
	p := actions.NewProber(clock, &action.Restore{}, nil, woken)
	t.Cleanup(p.Start(t.Context()))
	p.Add(t.Context(), q)
	synctest.Wait()
	require.Equal(t, 1, a.calls)
	return a, q, clock, woken
}

func TestAProbeIsRepeatedEachSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, q, clock, woken := startProbe(t, time.Minute)
		for calls := 1; calls < 4; calls++ {
			a.ready <- false
			synctest.Wait()
			clock.Step(time.Second - time.Nanosecond)
			synctest.Wait()
			require.Equal(t, calls, a.calls, "before the second is over")
			clock.Step(time.Nanosecond)
			synctest.Wait()
			require.Equal(t, calls+1, a.calls)
		}
		a.ready <- true
		require.EqualValues(t, 7, <-woken)
		require.NoError(t, q.Err)
	})
}

func TestALateAnswerDoesNotChangeAProbeThatIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, q, clock, woken := startProbe(t, time.Second)
		clock.Step(time.Second)
		require.EqualValues(t, 7, <-woken)
		require.ErrorContains(t, q.Err, "not ready after 1s")
		a.ready <- true
		synctest.Wait()
		require.Empty(t, woken, "the object is woken once")
		require.ErrorContains(t, q.Err, "not ready after 1s")
	})
}
