package cancellation

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

const (
	// atOnce is how many jobs of a kind are looked at at once.
	atOnce = 4
	// lookLimit is the timeout of reconciling one job.
	lookLimit = time.Minute
)

// Setup adds controllers for the requests on objects to a manager; name begins their names.
func (c *Canceller) Setup(mgr ctrl.Manager, name string) error {
	for kind, o := range map[string]struct {
		object client.Object
		do     reconcile.Func
	}{
		"backup":  {&velerov1.Backup{}, c.ReconcileBackup},
		"restore": {&velerov1.Restore{}, c.ReconcileRestore},
	} {
		err := ctrl.NewControllerManagedBy(mgr).Named(name+"-"+kind).For(o.object, builder.WithPredicates(c.isRequested())).
			WithOptions(controller.Options{MaxConcurrentReconciles: atOnce}).Complete(o.do)
		if err != nil {
			return fmt.Errorf("controller %s: %w", name+"-"+kind, err)
		}
	}
	return nil
}

// isRequested lets through objects that carry a request.
func (c *Canceller) isRequested() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, asked := mark.CancelRequested(o)
		return asked && o.GetNamespace() == c.Namespace
	})
}

// ReconcileBackup checks one backup and does what is due.
func (c *Canceller) ReconcileBackup(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return reconcileJob(ctx, c, backups, req, &velerov1.Backup{})
}

// ReconcileRestore checks one restore and does what is due.
func (c *Canceller) ReconcileRestore(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return reconcileJob(ctx, c, restores, req, &velerov1.Restore{})
}

func reconcileJob[T client.Object](ctx context.Context, c *Canceller, k *jobKind[T], req reconcile.Request, obj T) (reconcile.Result, error) {
	ctx, done := context.WithTimeout(ctx, lookLimit)
	defer done()
	if err := c.Reader.Get(ctx, req.NamespacedName, obj); err != nil {
		if client.IgnoreNotFound(err) == nil {
			c.forgetJob(k.name + "/" + req.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("read %s %q: %w", k.name, req.Name, err)
	}
	if _, asked := mark.CancelRequested(obj); !asked || obj.GetDeletionTimestamp() != nil {
		c.forgetJob(k.name + "/" + req.Name)
		return reconcile.Result{}, nil
	}
	switch k.stage(obj) {
	case mark.StageWaiting:
		return reconcile.Result{}, endWaiting(ctx, c, k, obj)
	case mark.StageRunning:
		return awaitEnd(ctx, c, k, obj)
	}
	c.forgetJob(k.name + "/" + req.Name)
	return reconcile.Result{}, nil
}
