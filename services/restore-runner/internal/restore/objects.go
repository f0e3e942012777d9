package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/parking"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/apiservice"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/chain"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/delay"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/namespaces"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/parked"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/screen"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/settle"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/workers"
)

// objects is the last pass: everything but definitions and namespaces, as its predecessors in the
// graph of the plan are done.
type objects struct {
	plan       *plan.Plan
	recorder   *outcome.Recorder
	loader     *object.Loader
	screen     *screen.Screen
	chains     *chain.Chains
	parked     *parked.Store
	namespaces *namespaces.Creator
	services   *apiservice.Services
	creation   *creation
	settler    *settle.Settler
	workers    *workers.Pool
	reset      *reset.Options
	lot        *parking.Lot
}

// restoreAll restores every object.
func (p *objects) restoreAll(ctx context.Context) error {
	work := dispatch.Work{
		Do: func(ctx context.Context, v int32) (wait *dispatch.Wait) {
			p.workers.Guard(ctx, v, func() { wait = p.restore(ctx, v) })
			if wait == nil || !wait.Wake {
				p.lot.Passed(v)
			}
			return wait
		},
		Weight: p.workers.Weight,
		Passive: func(v int32) bool {
			return int(v) >= p.plan.Len() || p.plan.Class(v) != plan.Other || p.recorder.Action(v) != ""
		},
		Reserve: func(v int32) bool { return !p.recorder.Concerns(v) },
		Limit:   p.workers.Limit,
		Budget:  workers.Budget,
		Stop:    p.workers.Stop,
		Woken:   p.lot.Woken(),
	}
	defer p.lot.Start(ctx)()
	defer p.chains.Start(ctx, p.lot.Woken())()
	return dispatch.Run(ctx, p.plan.Graph(), work)
}

// restore restores one object that is neither a definition nor a Namespace. It is called again for
// one that had to wait.
func (p *objects) restore(ctx context.Context, v int32) *dispatch.Wait {
	s := p.parked.Resume(v, p.recorder)
	if s.Wait == nil {
		p.namespaces.Prepare(ctx, v)
	}
	if wait, over := p.reachable(ctx, v, s); over {
		return wait
	}
	o, err := p.loader.Load(ctx, v)
	if err != nil {
		p.settler.Fail(ctx, s.Entry, v, err)
		return nil
	}
	if s.Wait == nil {
		if skip := p.screen.Skipped(o); skip != nil {
			p.settler.Skip(ctx, v, skip)
			return nil
		}
		p.screen.Report(s.Entry, o)
	}
	reset.Normalize(o.Body, p.plan.Kind(v).GroupResource(), p.reset)
	if wait, over := p.chains.Follow(ctx, o, s, true); wait != nil || over {
		return wait
	}
	return p.createOrPark(ctx, s, o)
}

// reachable finds out whether there is a place for an object in the cluster. over reports that it
// waits for that, or has its outcome.
func (p *objects) reachable(ctx context.Context, v int32, s *parked.State) (wait *dispatch.Wait, over bool) {
	err := p.lot.Expired(v)
	if reason := p.namespaces.Targets.Lost(p.plan.Target(v)); err == nil && reason != "" {
		err = fmt.Errorf("namespace %q: %s", p.plan.Target(v), reason)
	}
	if err != nil {
		p.settler.Fail(ctx, s.Entry, v, err)
		return nil, true
	}
	if s.Wait != nil {
		return nil, false // it was reachable before
	}
	if err = p.services.Unserved(ctx, v); err == nil {
		p.lot.Passed(v)
		return nil, false
	}
	if wait = p.waiter(v).Park(err); wait == nil {
		p.settler.Fail(ctx, s.Entry, v, err)
		return nil, true
	}
	if err := p.parked.Put(v, s, nil); err != nil { // it is begun anew
		p.settler.Fail(ctx, s.Entry, v, err)
		return nil, true
	}
	return wait, true
}

func (p *objects) waiter(v int32) delay.Waiter { return delay.Waiter{Lot: p.lot, Vertex: v} }

// createOrPark creates the normalized object, with the volume it needs, or has it wait.
func (p *objects) createOrPark(ctx context.Context, s *parked.State, o *object.Object) *dispatch.Wait {
	mark := s.Entry.Mark()
	for again := true; again; {
		err := p.creation.volumes.Provision(ctx, o)
		if err == nil {
			again, err = p.creation.create(ctx, s, o)
		}
		if err == nil {
			continue
		}
		var refused *refusal
		if errors.As(err, &refused) {
			return p.yield(ctx, o.Node, s, refused)
		}
		var wait *dispatch.Wait
		if wait, err = p.parked.Delay(ctx, o.Node, s, p.waiter(o.Node), err, mark); wait != nil {
			return wait
		}
		p.settler.Fail(ctx, s.Entry, o.Node, err)
		break
	}
	return nil
}
