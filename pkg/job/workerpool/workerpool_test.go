package workerpool

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

const (
	idle    = 10 * time.Second
	perSize = 8
)

func newPool(n int, c *clocktesting.FakeClock) *Pool {
	return New(Config{Size: n, Idle: idle, Total: n * perSize, Clock: c})
}

// isFull reports whether Try would fail now.
func isFull(p *Pool) bool { return len(p.free) == 0 || len(p.slots) == 0 }

func newFullPool(t *testing.T, n int) (*Pool, *clocktesting.FakeClock) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	p := newPool(n, clock)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
	return p, clock
}

func tryPlace(t *testing.T, p *Pool) *Place {
	t.Helper()
	s, ok := p.Try()
	require.True(t, ok)
	return s
}

// Jobs whose plugin hangs hold every slot for as long as its calls may take.
func TestWhoeverWaitsLosesItsPlaceAndGetsOneAgain(t *testing.T) {
	p, clock := newFullPool(t, 1)
	hung := tryPlace(t, p)
	require.True(t, isFull(p))
	_, ok := p.Try()
	require.False(t, ok)
	clock.Step(idle / 2)
	require.NoError(t, hung.Step(t.Context()), "one that works")
	clock.Step(idle * 3 / 4)
	require.Never(t, func() bool { return !isFull(p) }, 20*time.Millisecond, time.Millisecond)
	clock.Step(idle / 4)
	require.Eventually(t, func() bool { return !isFull(p) }, time.Minute, time.Millisecond)

	other := tryPlace(t, p)
	back := make(chan error, 1)
	go func() { back <- hung.Step(t.Context()) }()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	select {
	case <-back:
		t.Fatal("there is one place")
	case <-ended.Done():
	}
	other.Leave()
	require.NoError(t, <-back)
	require.True(t, isFull(p))
	hung.Leave()
	hung.Leave()
	require.Len(t, p.free, 1)
}

// A job takes many steps at once. Those that find the place lost would take a place each, of which
// one is given back: after one bucket that stood still for a while no job would get a place any
// more.
func TestStepsAtOnceTakeOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, steps = 2, 16
		p := newPool(n, clocktesting.NewFakeClock(time.Unix(0, 0)))
		slow := tryPlace(t, p)
		slow.releaseIf(func() bool { return true }, true)
		others := []*Place{tryPlace(t, p), tryPlace(t, p)}
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

// A goroutine of a job may outlive its work. A place that it took then would
// never be free again.
func TestAStepAfterLeaveTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(1, clocktesting.NewFakeClock(time.Unix(0, 0)))
		kept := tryPlace(t, p)
		kept.Leave()
		require.ErrorIs(t, kept.Step(t.Context()), ErrLeft)
		require.Len(t, p.free, 1)

		lost := tryPlace(t, p)
		lost.releaseIf(func() bool { return true }, true)
		other := tryPlace(t, p)
		waiting := make(chan error, 2)
		for range cap(waiting) { // one waits for the place, the other for its turn
			go func() { waiting <- lost.Step(t.Context()) }()
		}
		synctest.Wait()
		lost.Leave()
		for range cap(waiting) {
			require.ErrorIs(t, <-waiting, ErrLeft)
		}
		other.Leave()
		require.ErrorIs(t, lost.Step(t.Context()), ErrLeft)
		require.Len(t, p.free, 1)
		require.Len(t, p.slots, perSize)
	})
}

// Leave comes between the moment a step gets a place and the moment it notes that.
func TestAPlaceThatComesTooLateIsGivenBack(t *testing.T) {
	p := newPool(1, clocktesting.NewFakeClock(time.Unix(0, 0)))
	lost := tryPlace(t, p)
	lost.releaseIf(func() bool { return true }, true)
	<-p.free // as Step does
	lost.Leave()
	require.ErrorIs(t, lost.regainPlace(), ErrLeft)
	require.Len(t, p.free, 1)
}

func TestAStepEndsWithItsContext(t *testing.T) {
	p, clock := newFullPool(t, 1)
	hung := tryPlace(t, p)
	clock.Step(idle)
	require.Eventually(t, func() bool { return !isFull(p) }, time.Minute, time.Millisecond)
	tryPlace(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, hung.Step(ctx), context.Canceled)
	hung.Leave()
	require.Empty(t, p.free, "what was lost is not freed again")
}

// Each job under way may have processes of plugins.
func TestHowManyAreUnderWayIsBounded(t *testing.T) {
	p, clock := newFullPool(t, 1)
	for range perSize {
		tryPlace(t, p)
		clock.Step(idle)
		require.Eventually(t, func() bool { return len(p.free) == 1 }, time.Minute, time.Millisecond)
	}
	_, ok := p.Try()
	require.False(t, ok)
	require.True(t, isFull(p))
}

// The hint of a job that waits must not keep others from their messages.
func TestAPlaceThatWasGivenAwayIsLostOnce(t *testing.T) {
	p, clock := newFullPool(t, 1)
	hung := tryPlace(t, p)
	require.Never(t, func() bool { return isClosed(hung.Lost()) }, 20*time.Millisecond, time.Millisecond)
	for range 2 {
		clock.Step(idle)
		require.Eventually(t, func() bool { return len(p.free) == 1 }, time.Minute, time.Millisecond)
		require.True(t, isClosed(hung.Lost()))
		require.NoError(t, hung.Step(t.Context()))
	}
	hung.Leave()
	ended := tryPlace(t, p)
	ended.Leave()
	require.False(t, isClosed(ended.Lost()), "one that ends loses nothing")
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestWhoeverAcquiresWaitsForAPlace(t *testing.T) {
	p := New(Config{Size: 1, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	first := tryPlace(t, p)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Acquire(ended)
	require.ErrorIs(t, err, context.Canceled)
	got := make(chan *Place)
	go func() {
		second, err := p.Acquire(t.Context())
		if err == nil {
			got <- second
		}
	}()
	first.Leave()
	(<-got).Leave()
	require.Len(t, p.free, 1)
	require.Len(t, p.slots, 1)
}

func TestWithoutALimitOnIdlenessPlacesAreKept(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	p := New(Config{Size: 1, Clock: clock})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	tryPlace(t, p)
	require.False(t, clock.HasWaiters())
	stop()
	require.NoError(t, <-done)
}

func TestNoPlaceIsNoLimit(t *testing.T) {
	var s *Place
	require.NoError(t, s.Step(t.Context()))
	require.Nil(t, s.Lost())
	s.Leave()
}
