package dispatch_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
)

var errAway = errors.New("the webhook is away")

func awayCause(key string) dispatch.Cause {
	return dispatch.Cause{Kind: "webhook", Key: key, Timeout: time.Minute, Err: errAway}
}

// bed is a retrier by a clock of the test's.
type bed struct {
	*dispatch.Retrier
	clock *clocktesting.FakeClock
}

func startBed(t *testing.T) *bed {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	p := &bed{Retrier: dispatch.NewRetrier(clk), clock: clk}
	t.Cleanup(p.Start(t.Context()))
	return p
}

// requireWoken advances the clock until n vertices were woken, and returns them and the time it took.
func (p *bed) requireWoken(t *testing.T, n int) (out []int32, took time.Duration) {
	t.Helper()
	begun := p.clock.Now()
	require.Eventually(t, p.clock.HasWaiters, time.Minute, time.Millisecond)
	for len(out) < n {
		select {
		case v := <-p.Woken():
			out = append(out, v)
		case <-time.After(5 * time.Millisecond):
			require.Less(t, p.clock.Since(begun), time.Hour)
			p.clock.Step(250 * time.Millisecond)
		}
	}
	return out, p.clock.Since(begun)
}

// requireNoneWoken reports that nothing is woken by now.
func (p *bed) requireNoneWoken(t *testing.T) {
	t.Helper()
	select {
	case v := <-p.Woken():
		require.Failf(t, "woken", "%d", v)
	case <-time.After(20 * time.Millisecond):
	}
}

func TestOneOfThoseWithACauseIsTriedAtATime(t *testing.T) {
	p := startBed(t)
	for v := range int32(100) {
		require.True(t, p.Wait(v, awayCause("w")))
	}
	for v := range int32(3) {
		woken, _ := p.requireWoken(t, 1)
		require.Equal(t, []int32{v}, woken, "each in its turn")
		p.clock.Step(time.Second)
		p.requireNoneWoken(t)
		require.True(t, p.Wait(v, awayCause("w")))
	}
	woken, _ := p.requireWoken(t, 1)
	p.Passed(woken[0])
	rest, took := p.requireWoken(t, 99)
	require.Len(t, rest, 99, "the first that gets through wakes the others")
	require.LessOrEqual(t, took, time.Second)
}

func TestPausesGrow(t *testing.T) {
	p := startBed(t)
	require.True(t, p.Wait(1, dispatch.Cause{Kind: "deleted", Timeout: time.Hour}))
	var last time.Duration
	for range 8 {
		_, took := p.requireWoken(t, 1)
		require.GreaterOrEqual(t, took, last)
		require.LessOrEqual(t, took, 11*time.Second)
		last = took
		require.True(t, p.Wait(1, dispatch.Cause{Kind: "deleted", Timeout: time.Hour}))
	}
	require.Greater(t, last, 5*time.Second)
}

func TestWhatHasNoKeyHasItsOwnCause(t *testing.T) {
	p := startBed(t)
	require.True(t, p.Wait(1, awayCause("")))
	require.True(t, p.Wait(2, awayCause("")))
	woken, _ := p.requireWoken(t, 2)
	require.ElementsMatch(t, []int32{1, 2}, woken)
}

// A wait is bounded for each object, also for one that waits in turns for two things of a kind, and
// for one that is never tried because others with its cause are.
func TestWaitsAreBounded(t *testing.T) {
	p := startBed(t)
	require.True(t, p.Wait(1, awayCause("w")))
	require.True(t, p.Wait(2, awayCause("w")))
	woken, _ := p.requireWoken(t, 1)
	require.Equal(t, []int32{1}, woken)
	woken, took := p.requireWoken(t, 1) // 1 does not come back
	require.Equal(t, []int32{2}, woken)
	require.InDelta(t, time.Minute, took, float64(time.Second))
	require.ErrorIs(t, p.Expired(2), errAway)
	require.NoError(t, p.Expired(1), "it is being tried")
	require.False(t, p.Wait(1, awayCause("another")), "its minute is over")

	require.True(t, p.Wait(1, awayCause("w")), "a new object under the number")
}

// An object that meets another obstacle has passed the first one.
func TestAnotherCauseWakesThoseOfTheFirst(t *testing.T) {
	p := startBed(t)
	for v := range int32(3) {
		require.True(t, p.Wait(v, awayCause("w")))
	}
	woken, _ := p.requireWoken(t, 1)
	require.True(t, p.Wait(woken[0], dispatch.Cause{Kind: "deleted", Timeout: time.Hour}))
	rest, _ := p.requireWoken(t, 2)
	require.ElementsMatch(t, []int32{1, 2}, rest)
}

// Each of a million objects that wait for one webhook held the answer of the API server, of a
// kilobyte or more.
func TestThoseThatWaitForOneCauseShareItsFailure(t *testing.T) {
	const waiting = 10_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	p := startBed(t)
	before := heap()
	for v := range int32(waiting) {
		c := awayCause("w")
		c.Err = errors.New(strings.Repeat("x", 4<<10))
		require.True(t, p.Wait(v, c))
	}
	held := heap() - min(before, heap())
	require.Less(t, held, uint64(waiting*1<<10))
	p.clock.Step(time.Hour)
	woken, _ := p.requireWoken(t, waiting-1)
	require.Len(t, p.Expired(woken[len(woken)-1]).Error(), 4<<10)
}
