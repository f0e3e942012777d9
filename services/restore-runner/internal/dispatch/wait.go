package dispatch

import (
	"container/heap"
	"context"
)

// maxAside is how many calls of RunOutsideLimit at once do not count against Work.Limit.
const maxAside = 64

// Wait is what a vertex that Do was called for still waits for.
type Wait struct {
	// On are vertices that have to be done first. Those that wait for this one themselves, directly
	// or not, would close a cycle: Run moves them to Cut and does not wait for them.
	On []int32
	// Cut is what was not waited for. It is set when Do is called again.
	Cut []int32
	// Wake is set if Work.Woken delivers the vertex when it may continue.
	Wake bool
	// Yield lets the successors of the vertex, which may be among On, proceed as if it were done, but
	// for those of Hold that wait for something yet. It counts once for each vertex.
	Yield bool
	Hold  []int32
}

// vertexState is what is known of a vertex.
type vertexState uint8

const (
	open   vertexState = iota
	done               // nothing is left to do
	passed             // in reserve, and not waited for when it became ready
	late               // passed, and then wanted: those after it are released already
)

// waitState is a vertex that waits.
type waitState struct {
	wait *Wait
	open int // vertices that are not done, and one for Wake
}

type asideKey struct{}

// RunOutsideLimit runs do, which is called from within Work.Do and waits for something other than requests to
// the API server, such as a plugin. Meanwhile the vertex does not count against Work.Limit, only
// its weight counts; that holds for maxAside vertices at once.
func RunOutsideLimit(ctx context.Context, do func()) {
	aside, ok := ctx.Value(asideKey{}).(chan int)
	if !ok {
		do()
		return
	}
	aside <- 1
	defer func() { aside <- -1 }()
	do()
}

func (r *graphRun) isReserve(v int32) bool { return r.work.Reserve != nil && r.work.Reserve(v) }

// suspendVertex keeps a vertex until what it waits for has come.
func (r *graphRun) suspendVertex(v int32, w *Wait) {
	p := &waitState{wait: w}
	if w.Yield && r.state[v] == open {
		r.yieldVertex(v, w.Hold)
	}
	var on []int32
	for _, t := range w.On {
		switch {
		case t == v || r.waitsFor(t, v):
			w.Cut = append(w.Cut, t)
			continue
		case r.state[t] == passed:
			r.state[t] = late
			heap.Push(&r.ready, t)
		case r.state[t] == done || r.work.Passive(t):
			continue
		}
		on = append(on, t)
		r.waiters[t] = append(r.waiters[t], v)
		p.open++
	}
	w.On = on
	if w.Wake {
		p.open++
		r.asleep++
	}
	r.waiting[v] = p
	switch {
	case p.open == 0:
		r.resumeVertex(v)
	case w.Wake && r.early[v]:
		delete(r.early, v)
		r.wakeVertex(v)
	}
}

// yieldVertex releases the successors of v before it is done. The vertices in hold still wait until v is
// done.
func (r *graphRun) yieldVertex(v int32, hold []int32) {
	for _, h := range hold {
		if r.indegree[h] > 0 { // else it has begun
			r.indegree[h]++
			r.held[v] = append(r.held[v], h)
		}
	}
	r.state[v] = late
	r.releaseSuccessors(v)
}

// wakeVertex lets a vertex continue, perhaps before it waits.
func (r *graphRun) wakeVertex(v int32) {
	p := r.waiting[v]
	if p == nil || !p.wait.Wake {
		r.early[v] = true
		return
	}
	r.asleep--
	r.noteCame(v, p)
}

// wakeWaiters wakes the vertices that wait for v.
func (r *graphRun) wakeWaiters(v int32) {
	for _, w := range r.waiters[v] {
		r.noteCame(w, r.waiting[w])
	}
	delete(r.waiters, v)
}

func (r *graphRun) noteCame(v int32, p *waitState) {
	if p.open--; p.open == 0 {
		r.resumeVertex(v)
	}
}

func (r *graphRun) resumeVertex(v int32) {
	delete(r.waiting, v)
	heap.Push(&r.ready, v)
}

// waitsFor reports whether from waits for to, by the graph or because it waits. What is ready
// or runs does not wait.
func (r *graphRun) waitsFor(from, to int32) bool {
	if r.waiting[from] == nil && (r.indegree[from] == 0 || r.state[from] != open) {
		return false
	}
	seen, stack := map[int32]bool{to: true}, []int32{to}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		after := r.waiters[v]
		if r.state[v] == open {
			after = append(append([]int32(nil), after...), r.graph.Successors(v)...)
		}
		if held := r.held[v]; len(held) > 0 {
			after = append(append([]int32(nil), after...), held...)
		}
		for _, s := range after {
			if s == from {
				return true
			}
			if !seen[s] && r.state[s] != done {
				seen[s] = true
				stack = append(stack, s)
			}
		}
	}
	return false
}
