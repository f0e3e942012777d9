package engine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// takeFreePlace makes a job the work of this process if a place is free, in one step: while no place is
// free, active reports the jobs that have them. The activity is nil if none is free, or if active:
// the process works on the job already.
func (e *Engine[T]) takeFreePlace(next item) (work *activity, active bool) {
	return e.tracker.startActivity(next.uid, func() *activity {
		if e.places.TryAcquire(1) {
			return e.newActivity()
		}
		return nil
	})
}

// enterPlace is takeFreePlace, but waits for a place, and reports which jobs have to wait.
func (e *Engine[T]) enterPlace(ctx context.Context, next item) (*activity, error) {
	if work, active := e.takeFreePlace(next); active || work != nil {
		return work, nil
	}
	for _, i := range e.queue.markFull() {
		e.reportWait(ctx, i)
	}
	return e.acquirePlace(ctx, next)
}

// acquirePlace is enterPlace without the reports.
func (e *Engine[T]) acquirePlace(ctx context.Context, next item) (*activity, error) {
	if err := e.places.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	work, active := e.tracker.startActivity(next.uid, e.newActivity)
	if active {
		e.places.Release(1)
	}
	return work, nil
}

// reportWait writes an event and a log line about a job that waits for a place: one that is taken
// over has no holder until then.
func (e *Engine[T]) reportWait(ctx context.Context, i item) {
	if e.tracker.isActive(i.uid) {
		return // it has a place since it was found
	}
	e.cfg.Log.InfoContext(ctx, "Job waits", "kind", e.cfg.ObjectKind, "name", i.name, "uid", i.uid,
		"reason", "this process works on as many jobs as it may", "jobs", e.cfg.Concurrency)
	if e.cfg.Events == nil {
		return
	}
	e.cfg.Events.Eventf(e.newObject(i), nil, corev1.EventTypeNormal, "Waiting", "Start",
		"waits for a place in %s: it works on %d jobs, which is as many as it may", e.cfg.Service, e.cfg.Concurrency)
}
