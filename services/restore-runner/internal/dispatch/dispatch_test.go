package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// graph is an adjacency list.
type graph map[int32][]int32

func (g graph) Vertices() int { return len(g) }
func (g graph) Indegree() []int32 {
	out := make([]int32, len(g))
	for _, to := range g {
		for _, v := range to {
			out[v]++
		}
	}
	return out
}
func (g graph) Successors(v int32) []int32 { return g[v] }

func newWork(limit int, do func(ctx context.Context, v int32)) Work {
	return Work{
		Do: func(ctx context.Context, v int32) *Wait { do(ctx, v); return nil }, Weight: func(int32) int64 { return 1 }, Passive: func(int32) bool { return false },
		Limit: func() int { return limit }, Budget: 1 << 20,
	}
}

func TestPredecessorsFirstAndLowNumbersFirst(t *testing.T) {
	g := graph{0: {2}, 1: {2, 3}, 2: {4}, 3: {4}, 4: nil, 5: {0}}
	var order []int32
	require.NoError(t, Run(t.Context(), g, newWork(1, func(_ context.Context, v int32) { order = append(order, v) })))
	require.Equal(t, []int32{1, 3, 5, 0, 2, 4}, order)
}

func TestPassiveVerticesArePassed(t *testing.T) {
	g := graph{0: {1}, 1: {2}, 2: {3}, 3: nil}
	var order []int32
	w := newWork(4, func(_ context.Context, v int32) { order = append(order, v) })
	w.Passive = func(v int32) bool { return v == 1 || v == 2 }
	require.NoError(t, Run(t.Context(), g, w))
	require.Equal(t, []int32{0, 3}, order)
}

func TestWhatAPassiveRootReleasesIsDoneOnce(t *testing.T) {
	g := graph{0: {1}, 1: {2}, 2: nil}
	var order []int32
	w := newWork(1, func(_ context.Context, v int32) { order = append(order, v) })
	w.Passive = func(v int32) bool { return v == 0 }
	require.NoError(t, Run(t.Context(), g, w))
	require.Equal(t, []int32{1, 2}, order)
}

func TestStopLetsTheRunningOnesEnd(t *testing.T) {
	g := graph{0: {2}, 1: nil, 2: nil, 3: nil}
	stop := make(chan struct{})
	var once sync.Once
	var ended atomic.Int64
	w := newWork(2, func(ctx context.Context, _ int32) {
		once.Do(func() { close(stop) })
		<-stop
		if ctx.Err() == nil {
			ended.Add(1)
		}
	})
	w.Stop = stop
	require.ErrorIs(t, Run(t.Context(), g, w), ErrStopped)
	require.LessOrEqual(t, ended.Load(), int64(2))
	require.Positive(t, ended.Load())

	all := newWork(4, func(context.Context, int32) {})
	all.Stop = make(chan struct{})
	require.NoError(t, Run(t.Context(), g, all))
}

func TestLimitAndBudget(t *testing.T) {
	g := graph{}
	for v := range int32(50) {
		g[v] = nil
	}
	var now, most atomic.Int64
	var mu sync.Mutex
	weightNow, heaviest := int64(0), int64(0)
	weight := func(v int32) int64 { return int64(v%7) * 10 }
	w := newWork(8, func(_ context.Context, v int32) {
		mu.Lock()
		weightNow += weight(v)
		heaviest = max(heaviest, weightNow)
		mu.Unlock()
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		mu.Lock()
		weightNow -= weight(v)
		mu.Unlock()
	})
	w.Weight, w.Budget = weight, 100
	require.NoError(t, Run(t.Context(), g, w))
	require.LessOrEqual(t, most.Load(), int64(8))
	require.LessOrEqual(t, heaviest, int64(100))
}

func TestHeavyVertexRunsAlone(t *testing.T) {
	var done atomic.Int64
	w := newWork(8, func(context.Context, int32) { done.Add(1) })
	w.Weight, w.Budget = func(int32) int64 { return 1 << 30 }, 1
	require.NoError(t, Run(t.Context(), graph{0: nil, 1: nil}, w))
	require.EqualValues(t, 2, done.Load())
}

func TestEndOfContextStopsNewWork(t *testing.T) {
	cause := errors.New("lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	g := graph{0: {1}, 1: nil}
	var ran []int32
	err := Run(ctx, g, newWork(1, func(_ context.Context, v int32) {
		ran = append(ran, v)
		cancel(cause)
	}))
	require.ErrorIs(t, err, cause)
	require.Equal(t, []int32{0}, ran)
}

func TestLimiter(t *testing.T) {
	var l Limiter
	start := l.Limit()
	for range 200 {
		l.Observe(10*time.Millisecond, false)
	}
	grown := l.Limit()
	require.Greater(t, grown, start, "answers in good time raise the limit")

	l.Observe(10*time.Millisecond, true)
	l.Observe(10*time.Millisecond, true)
	require.Equal(t, grown/2, l.Limit(), "a round of refusals halves it once")

	for range 2000 {
		l.Observe(10*time.Millisecond, false)
	}
	high := l.Limit()
	for range 20 * high {
		l.Observe(200*time.Millisecond, false)
	}
	require.Less(t, l.Limit(), high, "growing latency lowers it")
	for range 100000 {
		l.Observe(0, false)
	}
	require.Equal(t, maximumLimit, l.Limit())
}

func TestQueueIsAHeap(t *testing.T) {
	var order []int32
	g := graph{9: nil}
	for v := range int32(9) {
		g[v] = nil
	}
	require.NoError(t, Run(t.Context(), g, newWork(1, func(_ context.Context, v int32) { order = append(order, v) })))
	require.True(t, slices.IsSorted(order))
}
