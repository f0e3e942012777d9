package engine

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// Reconcile implements reconcile.Reconciler: it announces a job that no process works on. One that
// was begun, that could not be announced, or whose hint had no effect for long is worked on here
// too: the first claim wins.
func (e *Engine[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := e.cfg.New()
	if err := e.cfg.Cached.Get(ctx, req.NamespacedName, obj); err != nil {
		e.queue.noteWaiting(req.NamespacedName, false)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	e.abandonSuperseded(ctx, obj)
	interest, err := e.interestIn(ctx, obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	if interest == Begin || interest == Resume {
		if !e.cfg.Instance.Ready() {
			return ctrl.Result{RequeueAfter: starting}, nil
		}
		if e.hasLiveOwner(obj) || e.tracker.inBackoff(obj.GetUID()) {
			interest = Wait // other instances observe the release themselves
		}
	}
	if interest == None || interest == Wait {
		e.queue.noteWaiting(req.NamespacedName, false)
	}
	switch interest {
	case None:
		return e.finalizeObject(ctx, obj)
	case Begin, Resume:
		announced := e.publishHint(ctx, obj)
		if e.queue.noteWaiting(req.NamespacedName, true) >= Overdue || interest == Resume || !announced {
			e.queueFound(ctx, obj)
		}
	case Wait:
	}
	return ctrl.Result{RequeueAfter: Period}, nil
}

func (e *Engine[T]) interestIn(ctx context.Context, obj T) (Interest, error) {
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return None, nil
	case e.Active(obj):
		return Wait, nil // what the cache shows may be from before its claim
	}
	return e.cfg.Kind.Pending(ctx, obj)
}

// abandonSuperseded gives the place of a job to others whose claim was taken from this process: its
// work is fenced by the epoch and may hang. Without a holder the job is then begun here again.
func (e *Engine[T]) abandonSuperseded(ctx context.Context, obj T) {
	c, _, err := claim.Parse(obj)
	if err != nil {
		return
	}
	work := e.tracker.abandon(obj.GetUID(), c.Epoch)
	if work == nil {
		return
	}
	e.cfg.Log.WarnContext(ctx, "Job has a later claim; its place is given to others", "kind", e.cfg.ObjectKind, "name", obj.GetName(), "epoch", c.Epoch)
	work.lose(fmt.Errorf("%w: to %q at epoch %d", claim.ErrLost, c.Owner, c.Epoch))
	work.leave()
	close(work.abandoned)
}

// hasLiveOwner reports that a live instance holds the object. The call also begins to watch that holder.
func (e *Engine[T]) hasLiveOwner(obj T) bool {
	var held *claim.HeldError
	return errors.As(e.cfg.Instance.Held(obj), &held)
}

// isUnowned reports that certainly no process works on an object: a claim that cannot be read has no
// holder either.
func (e *Engine[T]) isUnowned(obj T) bool {
	if e.Active(obj) {
		return false
	}
	if hasUnreadableClaim(obj) {
		return true
	}
	return e.cfg.Instance.Held(obj) == nil
}

func (e *Engine[T]) finalizeObject(ctx context.Context, obj T) (ctrl.Result, error) {
	f, ok := e.cfg.Kind.(Finalizer[T])
	if !ok {
		return ctrl.Result{}, nil
	}
	again, err := f.Finalize(ctx, obj, func() bool { return e.isUnowned(obj) })
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// publishHint publishes the hint of a job, and returns false if it could not.
func (e *Engine[T]) publishHint(ctx context.Context, obj T) bool {
	hint := &workv1.Hint{Kind: e.cfg.ObjectKind, Namespace: obj.GetNamespace(), Name: obj.GetName(), Uid: string(obj.GetUID())}
	err := e.cfg.Bus.Publish(messaging.WithTrace(ctx, obj), e.cfg.Work, hint)
	if err != nil && ctx.Err() == nil {
		e.cfg.Log.WarnContext(ctx, "Failed to publish hint; working without it", "kind", e.cfg.ObjectKind, "name", obj.GetName(), "error", err)
	}
	return err == nil
}

// queueFound queues a job without a hint, unless it failed here just now: the next reconcile finds it
// again.
func (e *Engine[T]) queueFound(ctx context.Context, obj client.Object) {
	if e.tracker.inBackoff(obj.GetUID()) {
		return
	}
	if i := (item{name: obj.GetName(), uid: obj.GetUID()}); e.queue.addJob(i) {
		e.reportWait(ctx, i)
	}
}
