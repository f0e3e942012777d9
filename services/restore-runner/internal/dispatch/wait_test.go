package dispatch

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// waits is work in which vertices wait for others the first time they run.
type waits struct {
	on      map[int32][]int32
	wake    map[int32]bool
	reserve map[int32]bool

	mu    sync.Mutex
	first map[int32]*Wait
	order []int32 // of those that are done
}

func (w *waits) doVertex(_ context.Context, v int32) *Wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == nil {
		w.first = map[int32]*Wait{}
	}
	if w.first[v] == nil && (w.on[v] != nil || w.wake[v]) {
		w.first[v] = &Wait{On: slices.Clone(w.on[v]), Wake: w.wake[v]}
		for _, t := range w.on[v] {
			delete(w.reserve, t)
		}
		return w.first[v]
	}
	w.order = append(w.order, v)
	return nil
}

func (w *waits) runGraph(t *testing.T, g graph, limit int, change ...func(*Work)) []int32 {
	t.Helper()
	work := newWork(limit, nil)
	work.Do = w.doVertex
	work.Reserve = func(v int32) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.reserve[v]
	}
	for _, c := range change {
		c(&work)
	}
	require.NoError(t, Run(t.Context(), g, work))
	return w.order
}

func TestAVertexWaitsForThoseItNames(t *testing.T) {
	for limit := range 4 {
		w := &waits{on: map[int32][]int32{0: {3, 4, 3}, 3: {2}}}
		order := w.runGraph(t, graph{0: {1}, 1: nil, 2: nil, 3: nil, 4: nil}, limit)
		require.Len(t, order, 5)
		place := func(v int32) int { return slices.Index(order, v) }
		require.Less(t, place(2), place(3))
		require.Less(t, place(3), place(0))
		require.Less(t, place(4), place(0))
		require.Less(t, place(0), place(1), "those after it wait with it")
		require.Empty(t, w.first[0].Cut)
	}
}

func TestAVertexDoesNotWaitForWhatIsDone(t *testing.T) {
	w := &waits{on: map[int32][]int32{2: {0, 1}}}
	require.Equal(t, []int32{0, 2}, w.runGraph(t, graph{0: nil, 1: {2}, 2: nil}, 1, func(work *Work) {
		work.Passive = func(v int32) bool { return v == 1 }
	}))
}

func TestOfACircleTheOneThatClosedItGoesFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		g     graph
		on    map[int32][]int32
		order []int32
		cut   map[int32][]int32
	}{
		"itself":              {graph{0: nil}, map[int32][]int32{0: {0}}, []int32{0}, map[int32][]int32{0: {0}}},
		"each other":          {graph{0: nil, 1: nil}, map[int32][]int32{0: {1}, 1: {0}}, []int32{1, 0}, map[int32][]int32{0: nil, 1: {0}}},
		"three":               {graph{0: nil, 1: nil, 2: nil}, map[int32][]int32{0: {1}, 1: {2}, 2: {0}}, []int32{2, 1, 0}, map[int32][]int32{2: {0}}},
		"one that is after":   {graph{0: {1}, 1: {2}, 2: nil}, map[int32][]int32{0: {2}}, []int32{0, 1, 2}, map[int32][]int32{0: {2}}},
		"graph and waits":     {graph{0: {2}, 1: nil, 2: nil}, map[int32][]int32{0: {1}, 1: {2}}, []int32{1, 0, 2}, map[int32][]int32{0: nil, 1: {2}}},
		"one of two":          {graph{0: nil, 1: nil, 2: nil}, map[int32][]int32{0: {1}, 1: {0, 2}}, []int32{2, 1, 0}, map[int32][]int32{1: {0}}},
		"no circle, a detour": {graph{0: {2}, 1: nil, 2: nil}, map[int32][]int32{1: {2}}, []int32{0, 2, 1}, map[int32][]int32{1: nil}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &waits{on: tt.on}
			require.Equal(t, tt.order, w.runGraph(t, tt.g, 1))
			for v, cut := range tt.cut {
				require.Equal(t, cut, w.first[v].Cut)
			}
		})
	}
}

func TestReservesRunOnlyWhenWaitedFor(t *testing.T) {
	for limit := range 3 {
		// 1 and its successor 2 are passed before 3 waits for 1; 5 is requested while its predecessor
		// runs; 6 never is.
		w := &waits{on: map[int32][]int32{3: {1, 5}}, reserve: map[int32]bool{1: true, 5: true, 6: true}}
		order := w.runGraph(t, graph{0: {1}, 1: {2}, 2: nil, 3: nil, 4: {5}, 5: nil, 6: {4}}, limit)
		require.ElementsMatch(t, []int32{0, 1, 2, 3, 4, 5}, order)
		require.Less(t, slices.Index(order, 1), slices.Index(order, 3))
		require.Less(t, slices.Index(order, 4), slices.Index(order, 5))
		require.Less(t, slices.Index(order, 5), slices.Index(order, 3))
	}
}

func TestSleepersAreWoken(t *testing.T) {
	woken := make(chan int32)
	w := &waits{wake: map[int32]bool{0: true, 1: true}, on: map[int32][]int32{1: {2}}}
	var group sync.WaitGroup
	group.Go(func() { woken <- 1; woken <- 0 }) // perhaps before they sleep
	order := w.runGraph(t, graph{0: nil, 1: nil, 2: nil}, 1, func(work *Work) { work.Woken = woken })
	group.Wait()
	require.ElementsMatch(t, []int32{0, 1, 2}, order)
}

func TestAStopLeavesSleepersUndone(t *testing.T) {
	stop := make(chan struct{})
	w := &waits{wake: map[int32]bool{0: true}}
	work := newWork(1, nil)
	work.Do, work.Woken, work.Stop = func(ctx context.Context, v int32) *Wait {
		if v == 1 {
			close(stop)
		}
		return w.doVertex(ctx, v)
	}, make(chan int32), stop
	require.ErrorIs(t, Run(t.Context(), graph{0: nil, 1: nil}, work), ErrStopped)
	require.Equal(t, []int32{1}, w.order)
}

func TestThoseAsideTakeNoPlace(t *testing.T) {
	g := graph{}
	for v := range int32(20) {
		g[v] = nil
	}
	let := make(chan struct{})
	var mu sync.Mutex
	ran := 0
	require.NoError(t, Run(t.Context(), g, newWork(1, func(ctx context.Context, v int32) {
		if v < 10 {
			RunOutsideLimit(ctx, func() { <-let })
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if ran++; ran == 10 {
			close(let) // all others ran although the limit is 1 and ten are under way
		}
	})))
	RunOutsideLimit(t.Context(), func() { ran = 0 })
	require.Zero(t, ran, "outside a run it just runs")
}

// An object that is refused without its owner has to come after it, although the owner waits for
// it: it lets the owner go first, also where a gate stands between them, and still comes before
// what waits for everything.
func TestAVertexThatYieldsLetsItsSuccessorsGoFirst(t *testing.T) {
	g := graph{0: {1, 4}, 1: {2}, 2: {3}, 3: nil, 4: {3}} // 1 and 3 are gates; 2 is the owner of 0, and 4 another one
	var order []int32
	w := newWork(2, nil)
	w.Passive = func(v int32) bool { return v == 1 }
	var mu sync.Mutex
	yielded := false
	w.Do = func(_ context.Context, v int32) *Wait {
		mu.Lock()
		defer mu.Unlock()
		if v == 0 && !yielded {
			yielded = true
			return &Wait{On: []int32{2}, Yield: true, Hold: []int32{3}}
		}
		order = append(order, v)
		return nil
	}
	require.NoError(t, Run(t.Context(), g, w))
	require.Len(t, order, 4)
	require.Less(t, slices.Index(order, 2), slices.Index(order, 0), "the owner goes first")
	require.Equal(t, int32(3), order[3], "what waits for everything waits for both")
}

// A second yield of the same vertex must not release its successors again.
func TestAVertexYieldsOnce(t *testing.T) {
	g := graph{0: {2}, 1: {2}, 2: nil}
	var order []int32
	times := 0
	w := newWork(1, nil)
	w.Do = func(_ context.Context, v int32) *Wait {
		if v == 0 && times < 3 {
			times++
			return &Wait{On: []int32{1}, Yield: true}
		}
		order = append(order, v)
		return nil
	}
	require.NoError(t, Run(t.Context(), g, w))
	require.ElementsMatch(t, []int32{0, 1, 2}, order)
}

// What was begun before the yield cannot be held up any more: it would be worked on twice.
func TestAYieldHoldsOnlyWhatHasNotBegun(t *testing.T) {
	g := graph{0: nil, 1: {0}, 2: nil}
	var order []int32
	w := newWork(1, nil)
	yielded := false
	w.Do = func(_ context.Context, v int32) *Wait {
		if v == 2 && !yielded {
			yielded = true
			return &Wait{Yield: true, Hold: []int32{0, 1}}
		}
		order = append(order, v)
		return nil
	}
	require.NoError(t, Run(t.Context(), g, w))
	require.Equal(t, []int32{1, 0, 2}, order)
}
