// Package dispatch runs the nodes of a graph in parallel: each starts when its own predecessors are done, ready ones in
// the order of their numbers, as many at once as an adaptive limit and a budget of bytes allow.
package dispatch

import (
	"container/heap"
	"context"
	"errors"
)

// ErrStopped means that not every vertex was started.
var ErrStopped = errors.New("stopped")

// Graph says what waits for what; it must have no cycles.
type Graph interface {
	// Vertices is the number of vertices.
	Vertices() int
	// Indegree returns the number of predecessors of each vertex, in a slice the caller may change.
	Indegree() []int32
	// Successors returns the vertices that wait for v.
	Successors(v int32) []int32
}

// Work is what a vertex means.
type Work struct {
	// Do works on vertex v. It reports failures by its own means: successors start all the same. It must not panic.
	Do func(ctx context.Context, v int32)
	// Weight is the memory Do takes for v, in bytes; vertices for which Passive is true are not asked.
	Weight func(v int32) int64
	// Passive tells that nothing has to be done for v: it is done as soon as it is ready.
	Passive func(v int32) bool
	// Limit is how many run at once; it is asked again after every end.
	Limit func() int
	// Stop, when closed, keeps further vertices from starting; those that run end in peace. Nil never does.
	Stop <-chan struct{}
	// Budget is how much weight runs at once, in bytes. A single heavier vertex runs alone.
	Budget int64
}

// Run works on every vertex of the graph. When ctx ends, or Stop is closed, no further vertex starts; Run returns after the
// running ones with the cause of ctx's end or ErrStopped, and nil after the last vertex otherwise.
func Run(ctx context.Context, g Graph, w Work) error {
	r := &run{graph: g, work: w, indegree: g.Indegree(), ended: make(chan int32)}
	for _, v := range r.roots() {
		r.become(v)
	}
	done, stop := ctx.Done(), w.Stop
	for r.running > 0 || (r.ready.Len() > 0 && !r.stopped(ctx)) {
		if !r.stopped(ctx) {
			r.start(ctx)
		}
		select {
		case v := <-r.ended:
			r.end(v)
		case <-done:
			done = nil // wait for what runs
		case <-stop:
			stop = nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.ready.Len() > 0:
		return ErrStopped
	}
	return nil
}

// roots returns the vertices without predecessors. They are found before the first is passed, which may make others ready.
func (r *run) roots() []int32 {
	var out []int32
	for v, n := range r.indegree {
		if n == 0 {
			out = append(out, int32(v))
		}
	}
	return out
}

func (r *run) stopped(ctx context.Context) bool {
	select {
	case <-r.work.Stop:
		return true
	default:
		return ctx.Err() != nil
	}
}

type run struct {
	graph    Graph
	work     Work
	indegree []int32
	ready    queue
	ended    chan int32
	running  int
	weight   int64
}

// start starts ready vertices while limit and budget allow.
func (r *run) start(ctx context.Context) {
	limit := max(1, r.work.Limit())
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
			defer func() { r.ended <- v }()
			r.work.Do(ctx, v)
		}()
	}
}

func (r *run) end(v int32) {
	r.running--
	r.weight -= r.work.Weight(v)
	r.release(v)
}

// become makes a vertex without open predecessors ready, or passes it when there is nothing to do. Chains of passive
// vertices are followed without recursion.
func (r *run) become(v int32) {
	if !r.work.Passive(v) {
		heap.Push(&r.ready, v)
		return
	}
	r.release(v)
}

// release tells the successors of v that it is done.
func (r *run) release(v int32) {
	stack := []int32{v}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, s := range r.graph.Successors(v) {
			if r.indegree[s]--; r.indegree[s] > 0 {
				continue
			}
			if r.work.Passive(s) {
				stack = append(stack, s)
			} else {
				heap.Push(&r.ready, s)
			}
		}
	}
}

// queue is a heap of vertices, the lowest number first.
type queue []int32

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i] < q[j] }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	if v, ok := x.(int32); ok {
		*q = append(*q, v)
	}
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	v := old[len(old)-1]
	*q = old[:len(old)-1]
	return v
}
