package app

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

const (
	// republish is how often an unprocessed request is looked at again, whatever became of its hint.
	republish = 15 * time.Second
	// forget is how often a processed one is looked at, until its day is over.
	forget = time.Hour
)

// controller looks at every request that is not processed.
func (a *App) controller() error {
	return ctrl.NewControllerManagedBy(a.runtime.Manager()).Named(Name).For(&velerov1.DeleteBackupRequest{}).
		Complete(reconcile.Func(a.reconcile))
}

func (a *App) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var d velerov1.DeleteBackupRequest
	if err := a.client().Get(ctx, req.NamespacedName, &d); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if d.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed {
		_, err := a.remover.Process(ctx, d.Name)
		return reconcile.Result{RequeueAfter: forget}, err
	}
	hint := &workv1.Hint{Kind: "DeleteBackupRequest", Namespace: d.Namespace, Name: d.Name, Uid: string(d.UID)}
	err := a.runtime.Fabric().Publish(ctx, fabric.WorkDeletionRun, hint)
	if err != nil && ctx.Err() == nil {
		a.config.Log.Warn("deletion not announced", "request", d.Name, "error", err)
	}
	if err != nil || a.config.Clock.Since(d.CreationTimestamp.Time) >= republish {
		a.offer(d.Name) // its hint, if it ever came, did not help
	}
	return reconcile.Result{RequeueAfter: republish}, nil
}

// offer has a request looked at soon. With too many before it the next look will do.
func (a *App) offer(name string) {
	select {
	case a.offered <- name:
	default:
	}
}

// work carries out requests that are offered, each in a goroutine of its own as far as there are slots, until ctx ends and all of
// them have handed over.
func (a *App) work(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case name := <-a.offered:
			if !a.slots.Full() {
				group.Go(func() { a.process(ctx, name) })
			}
		}
	}
}

// process survives whatever a request does: it has no handler of hints around it.
func (a *App) process(ctx context.Context, name string) {
	defer func() {
		if p := recover(); p != nil {
			a.config.Log.ErrorContext(ctx, "deletion panicked", "request", name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if _, err := a.remover.Process(ctx, name); err != nil && ctx.Err() == nil {
		a.config.Log.WarnContext(ctx, "deletion interrupted, it is tried again", "request", name, "error", err)
	}
}

// takeovers looks at the requests of holders as they die, without waiting for a message.
func (a *App) takeovers(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case holder := <-a.instance.Expired():
			a.takeOver(ctx, holder)
		}
	}
}

func (a *App) takeOver(ctx context.Context, holder string) {
	var list velerov1.DeleteBackupRequestList
	if err := a.reader().List(ctx, &list, client.InNamespace(a.config.Options.Namespace)); err != nil {
		a.config.Log.WarnContext(ctx, "requests of a dead holder not listed, reconciling will find them", "holder", holder, "error", err)
		return
	}
	for i := range list.Items {
		d := &list.Items[i]
		held, ok, err := claim.Parse(d)
		if err != nil || !ok || held.Holder != holder || d.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed {
			continue
		}
		a.config.Log.InfoContext(ctx, "taking over", "request", d.Name, "holder", holder)
		a.offer(d.Name)
	}
}
