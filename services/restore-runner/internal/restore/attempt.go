package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/delay"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/parked"
)

// reachable finds out whether there is a place for an object in the cluster. over reports that it
// waits for that, or has its outcome.
func (r *run) reachable(ctx context.Context, v int32, s *parked.State) (wait *dispatch.Wait, over bool) {
	err := r.lot.Expired(v)
	if reason := r.targets.Lost(r.Plan.Target(v)); err == nil && reason != "" {
		err = fmt.Errorf("namespace %q: %s", r.Plan.Target(v), reason)
	}
	if err != nil {
		r.settler.Fail(ctx, s.Entry, v, err)
		return nil, true
	}
	if s.Wait != nil {
		return nil, false // it was reachable before
	}
	if err = r.services.Unserved(ctx, v); err == nil {
		r.lot.Passed(v)
		return nil, false
	}
	if wait = r.waiter(v).Park(err); wait == nil {
		r.settler.Fail(ctx, s.Entry, v, err)
		return nil, true
	}
	if err := r.waiting.Put(v, s, nil); err != nil { // it is begun anew
		r.settler.Fail(ctx, s.Entry, v, err)
		return nil, true
	}
	return wait, true
}

// createOrPark creates the normalized object, with the volume it needs, or has it wait.
func (r *run) createOrPark(ctx context.Context, s *parked.State, it *object.Object) *dispatch.Wait {
	mark := s.Entry.Mark()
	for again := true; again; {
		err := r.volumes.Provision(ctx, it)
		if err == nil {
			again, err = r.create(ctx, s, it)
		}
		if err == nil {
			continue
		}
		var refused *refusal
		if errors.As(err, &refused) {
			return r.yield(ctx, it.Node, s, refused)
		}
		var wait *dispatch.Wait
		if wait, err = r.waiting.Delay(ctx, it.Node, s, r.waiter(it.Node), err, mark); wait != nil {
			return wait
		}
		r.settler.Fail(ctx, s.Entry, it.Node, err)
		break
	}
	return nil
}

func (r *run) waiter(v int32) delay.Waiter { return delay.Waiter{Lot: r.lot, Vertex: v} }
