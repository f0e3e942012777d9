package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/actions"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/flight"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// objectRestorer is the last pass: everything but definitions and namespaces, as its predecessors in the
// graph of the plan are done.
type objectRestorer struct {
	plan       *plan.Plan
	recorder   *outcome.Recorder
	loader     *object.Loader
	screen     *flight.Screen
	chains     *actions.Chains
	pending    *actions.PendingStore
	namespaces *namespaceCreator
	services   *flight.APIServices
	creation   *objectCreation
	finisher   *flight.Finisher
	workers    *flight.WorkerPool
	reset      *apply.ResetOptions
	retrier    *dispatch.Retrier
}

// restoreAll restores every object.
func (p *objectRestorer) restoreAll(ctx context.Context) error {
	work := dispatch.Work{
		Do: func(ctx context.Context, v int32) (wait *dispatch.Wait) {
			p.workers.WaitForRoom(ctx, func() { wait = p.restoreObject(ctx, v) })
			if wait == nil || !wait.Wake {
				p.retrier.Passed(v)
			}
			return wait
		},
		Weight: p.workers.Weight,
		Passive: func(v int32) bool {
			return int(v) >= p.plan.Len() || p.plan.Class(v) != plan.Other || p.recorder.Action(v) != ""
		},
		Reserve: func(v int32) bool { return !p.recorder.Concerns(v) },
		Limit:   p.workers.Limit,
		Budget:  flight.WorkerBudget,
		Stop:    p.workers.Stop,
		Woken:   p.retrier.Woken(),
	}
	defer p.retrier.Start(ctx)()
	defer p.recorder.ShowWaits(object.WaitsOf(p.retrier, func(v int32) (int32, string) { return v, "" }))()
	defer p.chains.Start(ctx, p.retrier.Woken())()
	return dispatch.Run(ctx, p.plan.Graph(), work)
}

// restoreObject restores one object that is neither a definition nor a Namespace. It is called again for
// one that had to wait.
func (p *objectRestorer) restoreObject(ctx context.Context, v int32) *dispatch.Wait {
	s := p.pending.Resume(v, p.recorder)
	if s.Wait == nil {
		p.namespaces.Prepare(ctx, v)
	}
	if wait, over := p.checkReachable(ctx, v, s); over {
		return wait
	}
	o, err := p.loader.Load(ctx, v)
	if err != nil {
		p.finisher.Fail(ctx, s.Entry, v, err)
		return nil
	}
	if s.Wait == nil {
		if skip := p.screen.Skipped(ctx, o); skip != nil {
			p.creation.pods.NoteSkipped(o, skip)
			p.finisher.Skip(ctx, v, skip)
			return nil
		}
		p.screen.Report(s.Entry, o)
	}
	p.screen.SuspendRunning(o)
	apply.NormalizeObject(o.Body, p.plan.Kind(v).GroupResource(), p.reset)
	if wait, over := p.chains.Follow(ctx, o, s, true); wait != nil || over {
		return wait
	}
	if was := p.plan.Kind(v); o.Kind != was {
		apply.NormalizeConverted(o.Body, o.Kind.GroupResource(), was.GroupResource(), p.reset)
	}
	return p.createOrWait(ctx, s, o)
}

// checkReachable finds out whether there is a place for an object in the cluster. over reports that it
// waits for that, or has its outcome.
func (p *objectRestorer) checkReachable(ctx context.Context, v int32, s *actions.PendingState) (wait *dispatch.Wait, over bool) {
	err := p.retrier.Expired(v)
	if reason := p.namespaces.Targets.Lost(p.plan.Target(v)); err == nil && reason != "" {
		err = fmt.Errorf("namespace %q: %s", p.plan.Target(v), reason)
	}
	if err != nil {
		p.finisher.Fail(ctx, s.Entry, v, err)
		return nil, true
	}
	if s.Wait != nil {
		return nil, false // it was reachable before
	}
	if err = p.services.Unserved(ctx, v); err == nil {
		p.retrier.Passed(v)
		return nil, false
	}
	if wait = p.waiterFor(v).Wait(err); wait == nil {
		p.finisher.Fail(ctx, s.Entry, v, err)
		return nil, true
	}
	if err := p.pending.Put(v, s, nil); err != nil { // it is begun anew
		p.finisher.Fail(ctx, s.Entry, v, err)
		return nil, true
	}
	return wait, true
}

func (p *objectRestorer) waiterFor(v int32) object.DelayWaiter {
	return object.DelayWaiter{Retrier: p.retrier, Vertex: v}
}

// createOrWait creates the normalized object, with the volume it needs, or has it wait.
func (p *objectRestorer) createOrWait(ctx context.Context, s *actions.PendingState, o *object.Object) *dispatch.Wait {
	mark := s.Entry.Mark()
	for again := true; again; {
		err := p.creation.volumes.Provision(ctx, s.Entry, o)
		if err == nil {
			err = p.creation.claims.Fill(ctx, s.Entry, o)
		}
		if err == nil {
			err = p.creation.pods.Prepare(ctx, o)
		}
		if err == nil {
			again, err = p.creation.createObject(ctx, s, o)
		}
		if err == nil {
			continue
		}
		var refused *orderRefusedError
		if errors.As(err, &refused) {
			return p.yieldToOwners(ctx, o.Node, s, refused)
		}
		var wait *dispatch.Wait
		cause := err
		if wait, err = p.pending.Delay(ctx, o.Node, s, p.waiterFor(o.Node), err, mark); wait != nil {
			p.releaseGuarded(o.Node, s, wait, cause)
			return wait
		}
		p.finisher.Fail(ctx, s.Entry, o.Node, err)
		break
	}
	return nil
}
