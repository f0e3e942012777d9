package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
)

// reachable finds out whether there is a place for an object in the cluster. over reports that it
// waits for that, or has its outcome.
func (r *run) reachable(ctx context.Context, v int32, s *parked) (wait *dispatch.Wait, over bool) {
	err := r.lot.Expired(v)
	if reason := r.lostNamespace(r.Plan.Target(v)); err == nil && reason != "" {
		err = fmt.Errorf("namespace %q: %s", r.Plan.Target(v), reason)
	}
	if err != nil {
		r.end(ctx, s.entry, v, err)
		return nil, true
	}
	if s.wait != nil {
		return nil, false // it was reachable before
	}
	if err = r.unserved(ctx, v); err == nil {
		r.lot.Passed(v)
		return nil, false
	}
	if wait = (waiter{r.lot, v}).park(err); wait == nil {
		r.end(ctx, s.entry, v, err)
		return nil, true
	}
	if err := r.waiting.put(v, s, nil); err != nil { // it is begun anew
		r.end(ctx, s.entry, v, err)
		return nil, true
	}
	return wait, true
}

// resume takes an object up again, or begins it.
func (r *run) resume(v int32) *parked {
	if s := r.waiting.take(v); s != nil {
		failpoint.Hit("restore-runner/woken")
		return s
	}
	return &parked{entry: r.Recorder.Begin(v)}
}

// createOrPark creates the normalized object, with the volume it needs, or has it wait.
func (r *run) createOrPark(ctx context.Context, s *parked, it *item) *dispatch.Wait {
	mark := s.entry.Mark()
	for again := true; again; {
		err := r.provision(ctx, it)
		if err == nil {
			again, err = r.create(ctx, s, it)
		}
		if err == nil {
			continue
		}
		var refused *refusal
		if errors.As(err, &refused) {
			return r.yield(ctx, it.node, s, refused)
		}
		var wait *dispatch.Wait
		if wait, err = r.parkDelayed(ctx, it.node, s, waiter{r.lot, it.node}, err, mark); wait != nil {
			return wait
		}
		r.end(ctx, s.entry, it.node, err)
		break
	}
	return nil
}

// parkDelayed parks an object if err is a delay that there is time for, and what was said about it
// since mark will be said again. Without a wait it returns why the object gets no further.
func (r *run) parkDelayed(ctx context.Context, v int32, s *parked, w waiter, err error, mark int) (*dispatch.Wait, error) {
	if cut(ctx, err) {
		return nil, err
	}
	wait := w.park(err)
	if wait == nil {
		return nil, err
	}
	s.tried = true
	if err := r.waiting.keep(v, s, wait); err != nil {
		return nil, err
	}
	s.entry.Rewind(mark)
	return wait, nil
}
