package engine

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/pkg/job/workerpool"
)

// place waits for a place, and reports which jobs have to wait.
func (e *Engine[T]) place(ctx context.Context) (*workerpool.Place, error) {
	if place, ok := e.pool.Try(); ok {
		return place, nil
	}
	for _, i := range e.found.crowded() {
		e.reportWait(ctx, i)
	}
	return e.pool.Acquire(ctx)
}

// reportWait says on the object and in the log that a job waits for a place: one that is taken over
// has no holder until then.
func (e *Engine[T]) reportWait(ctx context.Context, i item) {
	e.cfg.Log.InfoContext(ctx, "job waits", "kind", e.cfg.ObjectKind, "name", i.name, "uid", i.uid,
		"reason", "this process works on as many jobs as it may", "jobs", e.cfg.Concurrency)
	if e.cfg.Events == nil {
		return
	}
	obj := e.cfg.New()
	obj.SetNamespace(e.cfg.Namespace)
	obj.SetName(i.name)
	obj.SetUID(i.uid)
	e.cfg.Events.Eventf(obj, nil, corev1.EventTypeNormal, "Waiting", "Start",
		"waits for a place in %s: it works on %d jobs, which is as many as it may", e.cfg.Service, e.cfg.Concurrency)
}
