package engine

import (
	"context"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// takeOverJobs finds the jobs of instances that die, until ctx ends; no message is needed for that.
func (e *Engine[T]) takeOverJobs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case holder := <-e.cfg.Instance.Expired():
			e.findJobsOf(ctx, holder)
		}
	}
}

// findJobsOf finds the jobs of a dead holder. A claim that cannot be read names none; the next pass
// finds its object.
func (e *Engine[T]) findJobsOf(ctx context.Context, holder string) {
	list := e.cfg.NewList()
	err := e.cfg.Cached.List(ctx, list, client.InNamespace(e.cfg.Namespace), client.UnsafeDisableDeepCopy) // read only
	if err == nil {
		err = apimeta.EachListItem(list, func(o runtime.Object) error {
			if obj, ok := o.(T); ok {
				e.findJobOf(ctx, obj, holder)
			}
			return nil
		})
	}
	if err != nil && ctx.Err() == nil {
		e.cfg.Log.WarnContext(ctx, "Failed to list the jobs of a dead instance; the next pass finds them", "kind", e.cfg.ObjectKind, "holder", holder, "error", err)
	}
}

func (e *Engine[T]) findJobOf(ctx context.Context, obj T, holder string) {
	held, ok, err := claim.Parse(obj)
	if err != nil || !ok || held.Owner != holder || e.cfg.Kind.Terminal(obj) || obj.GetDeletionTimestamp() != nil {
		return
	}
	e.cfg.Log.InfoContext(ctx, "Taking over the job of a dead instance", "kind", e.cfg.ObjectKind, "name", obj.GetName(), "holder", holder)
	e.queueFound(ctx, obj)
}
