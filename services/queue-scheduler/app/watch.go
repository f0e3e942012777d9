package app

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/settings"
)

// watchObjects wakes the scheduler, and notifies the watchers of the queue, on every change that may
// matter to it.
func (a *App) watchObjects() error {
	wake := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		a.scheduler.Wake()
		a.feed.Changed()
		return reconcile.Result{}, nil
	})
	ofSettings := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == settings.Name })
	for name, c := range map[string]*builder.Builder{
		"backup":   ctrl.NewControllerManagedBy(a.runtime.Manager()).For(&velerov1.Backup{}, builder.WithPredicates(relevantUpdates())),
		"restore":  ctrl.NewControllerManagedBy(a.runtime.Manager()).For(&velerov1.Restore{}, builder.WithPredicates(relevantUpdates())),
		"settings": ctrl.NewControllerManagedBy(a.runtime.Manager()).For(&corev1.ConfigMap{}, builder.OnlyMetadata, builder.WithPredicates(ofSettings)),
	} {
		if err := c.Named(Name + "-" + name).Complete(wake); err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	return nil
}

// relevantUpdates leaves out updates that change only the progress of a job or its position: both come
// several times a second, the latter from the scheduler itself.
func relevantUpdates() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		if before.GetUID() != after.GetUID() || (before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) {
			return true
		}
		phase, spec := phaseAndCancel(before)
		newPhase, newSpec := phaseAndCancel(after)
		return phase != newPhase || !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) || !equality.Semantic.DeepEqual(spec, newSpec)
	}}
}

// phaseAndCancel is the phase of a job and its request to cancel.
func phaseAndCancel(o client.Object) (phase string, spec any) {
	switch o := o.(type) {
	case *velerov1.Backup:
		return string(o.Status.Phase), o.Spec
	case *velerov1.Restore:
		return string(o.Status.Phase), o.Spec
	}
	return "", o
}
