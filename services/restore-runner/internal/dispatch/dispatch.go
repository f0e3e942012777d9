// Package dispatch runs the nodes of a graph in parallel: each starts when its own predecessors are
// done, ready ones in the order of their numbers, as many at once as an adaptive limit and a budget
// of bytes allow. A node may find out while it is worked on that it has to wait for others; then it
// waits without taking up limit or budget.
package dispatch

import (
	"container/heap"
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/job/panics"
)

// ErrStopped means that not every vertex was started.
var ErrStopped = errors.New("stopped")

// Graph is the order of the vertices; it must have no cycles.
type Graph interface {
	// Vertices is the number of vertices.
	Vertices() int
	// Indegree returns the number of predecessors of each vertex, in a slice the caller may change.
	Indegree() []int32
	// Successors returns the vertices that wait for v.
	Successors(v int32) []int32
}

// Independent is a graph of as many vertices, which wait for nothing.
type Independent int

// Vertices implements Graph.
func (n Independent) Vertices() int { return int(n) }

// Indegree implements Graph.
func (n Independent) Indegree() []int32 { return make([]int32, n) }

// Successors implements Graph.
func (n Independent) Successors(int32) []int32 { return nil }

// Work is what a vertex means.
type Work struct {
	// Do works on vertex v. It reports failures by its own means: successors start all the same. It
	// must not panic. Nil means that v is done; otherwise Do is called for it again once the Wait is
	// over.
	Do func(ctx context.Context, v int32) *Wait
	// Weight is the memory Do takes for v, in bytes; vertices for which Passive is true are not
	// asked.
	Weight func(v int32) int64
	// Passive reports that nothing has to be done for v: it is done as soon as it is ready.
	Passive func(v int32) bool
	// Reserve reports that v is worked on only if another vertex waits for it; it delays no other
	// job before. It must be false from before Do returns a Wait for v. Nil means that there are
	// none.
	Reserve func(v int32) bool
	// Woken delivers the vertices that return a Wait with Wake, each once. Nil if there are none.
	Woken <-chan int32
	// Limit is how many run at once; it is asked again after every end.
	Limit func() int
	// Stop, when closed, keeps further vertices from starting; those that run are not interrupted.
	// Nil is never closed.
	Stop <-chan struct{}
	// Budget is how much weight runs at once, in bytes. A single heavier vertex runs alone.
	Budget int64
}

// Run works on every vertex of the graph. When ctx ends, or Stop is closed, no further vertex
// starts; Run returns after the running ones with the cause of ctx's end or ErrStopped, and nil
// after the last vertex otherwise. A panic of Do ends the others and is Run's.
func Run(ctx context.Context, g Graph, w Work) error {
	r := &graphRun{
		graph: g, work: w, indegree: g.Indegree(), state: make([]vertexState, g.Vertices()),
		ended: make(chan vertexResult), aside: make(chan int), waiting: map[int32]*waitState{}, waiters: map[int32][]int32{}, early: map[int32]bool{}, held: map[int32][]int32{},
	}
	for _, v := range r.rootVertices() {
		r.becomeReady(v)
	}
	inner, interrupt := context.WithCancel(context.WithValue(ctx, asideKey{}, r.aside))
	defer interrupt()
	done, stop := ctx.Done(), w.Stop
	for r.running > 0 || (r.ready.Len()+r.asleep > 0 && !r.isStopped(ctx)) {
		if !r.isStopped(ctx) {
			r.startReady(inner)
		}
		select {
		case e := <-r.ended:
			if e.panicked != nil {
				r.panicked = e.panicked
				interrupt()
			}
			r.endVertex(e)
		case v := <-w.Woken:
			r.wakeVertex(v)
		case n := <-r.aside:
			r.outside += n
		case <-done:
			done = nil // wait for what runs
		case <-stop:
			stop = nil
		}
	}
	switch {
	case r.panicked != nil:
		return panics.Raise(r.panicked)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.ready.Len()+len(r.waiting) > 0:
		return ErrStopped
	}
	return nil
}

// rootVertices returns the vertices without predecessors. They are found before the first is passed, which
// may make others ready.
func (r *graphRun) rootVertices() []int32 {
	var out []int32
	for v, n := range r.indegree {
		if n == 0 {
			out = append(out, int32(v))
		}
	}
	return out
}

func (r *graphRun) isStopped(ctx context.Context) bool {
	select {
	case <-r.work.Stop:
		return true
	default:
		return r.panicked != nil || ctx.Err() != nil
	}
}

type graphRun struct {
	graph    Graph
	work     Work
	indegree []int32
	state    []vertexState
	ready    vertexHeap
	ended    chan vertexResult
	running  int
	weight   int64
	panicked error // the panic of a call of Do

	aside   chan int
	outside int // of the running ones, those in RunOutsideLimit

	waiting map[int32]*waitState
	waiters map[int32][]int32 // vertex -> those that wait until it is done, one of them twice if it asked twice
	asleep  int               // those that wait to be woken
	early   map[int32]bool    // woken before they waited
	held    map[int32][]int32 // vertices that wait for one that yielded
}

// vertexResult is what became of a call of Do.
type vertexResult struct {
	v        int32
	wait     *Wait
	panicked error
}

// startReady starts ready vertices while limit and budget allow.
func (r *graphRun) startReady(ctx context.Context) {
	limit := max(1, r.work.Limit()) + min(r.outside, maxAside)
	for r.ready.Len() > 0 && r.running < limit {
		v := r.ready[0]
		weight := r.work.Weight(v)
		if r.running > 0 && r.weight+weight > r.work.Budget {
			return
		}
		heap.Pop(&r.ready)
		r.running++
		r.weight += weight
		go func() {
			e := vertexResult{v: v}
			e.panicked = panics.Catch(func() error {
				e.wait = r.work.Do(ctx, v)
				return nil
			})
			r.ended <- e
		}()
	}
}

func (r *graphRun) endVertex(e vertexResult) {
	r.running--
	r.weight -= r.work.Weight(e.v)
	if e.wait != nil {
		r.suspendVertex(e.v, e.wait)
		return
	}
	late := r.state[e.v] == late
	r.state[e.v] = done
	if !late { // else those after it did not wait
		r.releaseSuccessors(e.v)
	}
	r.releaseHeld(r.held[e.v])
	delete(r.held, e.v)
	r.wakeWaiters(e.v)
}

// becomeReady makes a vertex without open predecessors ready, or passes it when there is nothing to do.
func (r *graphRun) becomeReady(v int32) {
	if r.passVertex(v) {
		r.releaseSuccessors(v)
	}
}

// passVertex passes a vertex without open predecessors for which there is nothing to do; the others are
// ready.
func (r *graphRun) passVertex(v int32) bool {
	switch {
	case r.work.Passive(v):
		r.state[v] = done
	case r.isReserve(v):
		r.state[v] = passed
	default:
		heap.Push(&r.ready, v)
		return false
	}
	return true
}

// releaseSuccessors lowers the count of unfinished predecessors of the successors of v. Chains of passive
// vertices are followed without recursion.
func (r *graphRun) releaseSuccessors(v int32) {
	stack := []int32{v}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		stack = r.decrementCounts(stack, r.graph.Successors(v))
	}
}

// releaseHeld removes one reason from vertices that were held up by a vertex which is done.
func (r *graphRun) releaseHeld(held []int32) {
	for _, v := range r.decrementCounts(nil, held) {
		r.releaseSuccessors(v)
	}
}

// decrementCounts counts one predecessor less for each vertex, and appends those that are passed by that.
func (r *graphRun) decrementCounts(passed, vertices []int32) []int32 {
	for _, s := range vertices {
		if r.indegree[s]--; r.indegree[s] == 0 && r.passVertex(s) {
			passed = append(passed, s)
		}
	}
	return passed
}

// vertexHeap is a heap of vertices, the lowest number first.
type vertexHeap []int32

func (q vertexHeap) Len() int           { return len(q) }
func (q vertexHeap) Less(i, j int) bool { return q[i] < q[j] }
func (q vertexHeap) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *vertexHeap) Push(x any) {
	if v, ok := x.(int32); ok {
		*q = append(*q, v)
	}
}

// Pop implements heap.Interface.
func (q *vertexHeap) Pop() any {
	old := *q
	v := old[len(old)-1]
	*q = old[:len(old)-1]
	return v
}
