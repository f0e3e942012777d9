package schedule

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Watch wakes the Scheduler when a Schedule changes and when a Backup of one may have ended. It
// adds a controller of the given name to a manager.
func (s *Scheduler) Watch(mgr ctrl.Manager, name string) error {
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		For(&velerov1.Schedule{}).
		Watches(&velerov1.Backup{}, handler.EnqueueRequestsFromMapFunc(ofSchedule), builder.WithPredicates(endedBackups())).
		Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			s.Wake()
			return reconcile.Result{}, nil
		}))
}

// ofSchedule maps a Backup to its Schedule.
func ofSchedule(_ context.Context, b client.Object) []reconcile.Request {
	name, ok := b.GetLabels()[velerov1.LabelScheduleName]
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: b.GetNamespace(), Name: name}}}
}

// endedBackups lets through what frees a slot that waits; a missed one costs a period.
func endedBackups() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*velerov1.Backup)
			after, ok2 := e.ObjectNew.(*velerov1.Backup)
			return ok && ok2 && isBlocking(before) && !isBlocking(after)
		},
	}
}
