package flight

import (
	"context"
	"slices"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

const (
	// WorkerBudget bounds the memory of the objects being worked on, in bytes.
	WorkerBudget = 16 << 20
	// bodyFactor is how many times its stored size an object takes while it is decoded, changed and
	// encoded.
	bodyFactor = 6
	// bodyOverhead is what each object takes whatever its size.
	bodyOverhead = 32 << 10
)

// WorkerPool works on objects. Safe for concurrent use.
type WorkerPool struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	Finisher *Finisher
	Clock    clock.WithTicker
	// Limit is how many requests run at once.
	Limit func() int
	Stop  object.StopSignal
}

// Weight is the memory that work on an object takes, in bytes.
func (p *WorkerPool) Weight(v int32) int64 { return bodyFactor*p.Plan.Size(v) + bodyOverhead }

// WaitForRoom calls do once the recorder has room for an outcome, unless ctx ends.
func (p *WorkerPool) WaitForRoom(ctx context.Context, do func()) {
	if p.Recorder.Room(ctx) == nil {
		do()
	}
}

// Open returns those nodes that have no outcome yet. It changes nodes.
func (p *WorkerPool) Open(nodes []int32) []int32 {
	return slices.DeleteFunc(nodes, func(v int32) bool { return p.Recorder.Action(v) != "" })
}

// Each runs do for some nodes in parallel, and again for those that waited.
func (p *WorkerPool) Each(ctx context.Context, nodes []int32, do func(context.Context, int32, object.DelayWaiter) *dispatch.Wait) error {
	node := func(v int32) (int32, string) { return nodes[v], "" }
	return p.All(ctx, len(nodes), node, func(v int32) int64 { return p.Weight(nodes[v]) },
		func(ctx context.Context, w object.DelayWaiter) (wait *dispatch.Wait) {
			p.WaitForRoom(ctx, func() { wait = do(ctx, nodes[w.Vertex], w) })
			return wait
		})
}

// All runs n vertices that do not depend on one another in parallel, and again those that waited. node
// returns the object of a vertex, or outcome.General and a name.
func (p *WorkerPool) All(ctx context.Context, n int, node func(int32) (int32, string), weight func(int32) int64, do func(context.Context, object.DelayWaiter) *dispatch.Wait) error {
	retrier := dispatch.NewRetrier(p.Clock)
	defer retrier.Start(ctx)()
	defer p.Recorder.ShowWaits(object.WaitsOf(retrier, node))()
	return dispatch.Run(ctx, dispatch.Independent(n), dispatch.Work{
		Do: func(ctx context.Context, v int32) *dispatch.Wait {
			w := object.DelayWaiter{Retrier: retrier, Vertex: v}
			wait := do(ctx, w)
			if wait == nil {
				retrier.Passed(v)
			}
			return wait
		},
		Weight:  weight,
		Woken:   retrier.Woken(),
		Passive: func(int32) bool { return false },
		Limit:   p.Limit,
		Budget:  WorkerBudget,
		Stop:    p.Stop,
	})
}
