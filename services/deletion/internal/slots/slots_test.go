package slots

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func running(t *testing.T, n int) (*Pool, *clocktesting.FakeClock) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	p := New(n, clock)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
	return p, clock
}

func try(t *testing.T, p *Pool) *Slot {
	t.Helper()
	s, ok := p.Try()
	require.True(t, ok)
	return s
}

// Deletions whose plugin hangs hold every slot for as long as its calls may take.
func TestWhoeverWaitsLosesItsSlotAndGetsOneAgain(t *testing.T) {
	p, clock := running(t, 1)
	hung := try(t, p)
	require.True(t, p.Full())
	_, ok := p.Try()
	require.False(t, ok)
	clock.Step(idle / 2)
	require.NoError(t, hung.Step(t.Context()), "one that works")
	clock.Step(idle * 3 / 4)
	require.Never(t, func() bool { return !p.Full() }, 20*time.Millisecond, time.Millisecond)
	clock.Step(idle / 4)
	require.Eventually(t, func() bool { return !p.Full() }, time.Minute, time.Millisecond)

	other := try(t, p)
	back := make(chan error, 1)
	go func() { back <- hung.Step(t.Context()) }()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	select {
	case <-back:
		t.Fatal("there is one slot")
	case <-ended.Done():
	}
	other.Leave()
	require.NoError(t, <-back)
	require.True(t, p.Full())
	hung.Leave()
	hung.Leave()
	require.Len(t, p.free, 1)
}

// A deletion removes many objects at once, each of which is a step. Those that find the slot lost take a slot each, of which one is given
// back: after one bucket that stood still for a while no deletion gets a slot any more.
func TestStepsAtOnceTakeOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, steps = 2, 16
		p := New(n, clocktesting.NewFakeClock(time.Unix(0, 0)))
		slow := try(t, p)
		slow.release(func() bool { return true })
		others := []*Slot{try(t, p), try(t, p)}
		var done atomic.Int32
		stopped, stop := context.WithCancel(t.Context())
		stop()
		for range steps {
			go func() {
				if slow.Step(t.Context()) == nil {
					done.Add(1)
				}
			}()
		}
		synctest.Wait()
		require.Zero(t, done.Load())
		require.ErrorIs(t, slow.Step(stopped), context.Canceled, "one that waits behind another can be stopped")
		for _, o := range others {
			o.Leave()
		}
		synctest.Wait()
		require.EqualValues(t, steps, done.Load())
		require.Len(t, p.free, n-1)
		slow.Leave()
		require.Len(t, p.free, n)
	})
}

func TestAStepEndsWithItsContext(t *testing.T) {
	p, clock := running(t, 1)
	hung := try(t, p)
	clock.Step(idle)
	require.Eventually(t, func() bool { return !p.Full() }, time.Minute, time.Millisecond)
	try(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, hung.Step(ctx), context.Canceled)
	hung.Leave()
	require.Empty(t, p.free, "what was lost is not freed again")
}

// Each deletion under way may have processes of plugins.
func TestHowManyAreUnderWayIsBounded(t *testing.T) {
	p, clock := running(t, 1)
	for range perSlot {
		try(t, p)
		clock.Step(idle)
		require.Eventually(t, func() bool { return len(p.free) == 1 }, time.Minute, time.Millisecond)
	}
	_, ok := p.Try()
	require.False(t, ok)
	require.True(t, p.Full())
}

func TestWithoutAPoolThereIsNoLimit(t *testing.T) {
	var p *Pool
	s, ok := p.Try()
	require.True(t, ok)
	require.NoError(t, s.Step(t.Context()))
	s.Leave()
}
