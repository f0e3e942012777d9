package job

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/offer"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// soon is the pause before a deleted restore is looked at whose job is still stopping.
const soon = time.Second

// Cleaner removes what a restore that is being deleted left in the bucket.
type Cleaner interface {
	// Clean removes the files and the finalizer. An error means that it has to be tried again.
	Clean(ctx context.Context, restore *velerov1.Restore) error
}

// Controller finds restores that this service has to work on, from the objects alone: hints are only faster.
type Controller struct {
	runner  *Runner
	cached  client.Reader
	publish func(ctx context.Context, hint *workv1.Hint) error
	cleaner Cleaner
	desk    *offer.Desk
}

// NewController returns a controller. cached may be a cache; publish sends a restore.run hint; atOnce is how many restores that
// no message announced are worked on at once.
func NewController(runner *Runner, cached client.Reader, publish func(ctx context.Context, hint *workv1.Hint) error, cleaner Cleaner, atOnce int) *Controller {
	desk := offer.New(offer.Config{Run: runner.Run, AtOnce: atOnce, Clock: runner.cfg.Clock, Log: runner.cfg.Log})
	return &Controller{runner: runner, cached: cached, publish: publish, cleaner: cleaner, desk: desk}
}

// Setup registers the controller with a manager.
func (c *Controller) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("restore-runner").For(&velerov1.Restore{}).Complete(c)
}

// Reconcile implements reconcile.Reconciler.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	restore := &velerov1.Restore{}
	if err := c.cached.Get(ctx, req.NamespacedName, restore); err != nil {
		c.desk.Waits(req.NamespacedName, false)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if restore.DeletionTimestamp != nil {
		c.desk.Waits(req.NamespacedName, false)
		return c.delete(ctx, restore)
	}
	if restore.Status.Phase.Terminal() {
		c.desk.Waits(req.NamespacedName, false)
		return ctrl.Result{}, nil
	}
	work, err := c.work(ctx, restore)
	if err != nil {
		return ctrl.Result{RequeueAfter: offer.Period}, err
	}
	waited := c.desk.Waits(req.NamespacedName, work)
	if work {
		c.hint(ctx, restore)
	}
	if work && (begun(restore.Status.Phase) || waited >= offer.Overdue) {
		c.offer(restore) // handed over, orphaned, or announced in vain: it goes on, whatever becomes of the hint
	}
	return ctrl.Result{RequeueAfter: offer.Period}, nil
}

// work tells whether a restore can be taken by somebody now.
func (c *Controller) work(ctx context.Context, restore *velerov1.Restore) (bool, error) {
	switch {
	case restore.Status.Phase.IsNew():
		if _, running := c.runner.Running(restore.UID); running {
			return false, nil // just taken: the cache does not show it yet
		}
		_, admitted, err := c.runner.cfg.Ledger.Get(ctx, restore.UID)
		return admitted, err
	case begun(restore.Status.Phase):
		return c.free(restore), nil
	}
	return false, nil
}

// free tells that nobody works on a restore: its holder is gone, or is this process, which does not, or cannot be told any
// more.
func (c *Controller) free(restore *velerov1.Restore) bool {
	if _, running := c.runner.Running(restore.UID); running {
		return false
	}
	if readable(restore) != nil {
		return true
	}
	_, err := c.runner.cfg.Claims.Take(restore)
	return err == nil
}

// hint tells all runners; without NATS this one looks itself.
func (c *Controller) hint(ctx context.Context, restore *velerov1.Restore) {
	err := c.publish(fabric.WithTrace(ctx, restore), &workv1.Hint{Kind: "Restore", Namespace: restore.Namespace, Name: restore.Name, Uid: string(restore.UID)})
	if err != nil {
		c.runner.cfg.Log.Debug("hint not published", "restore", restore.Name, "error", err)
		c.offer(restore)
	}
}

func (c *Controller) offer(restore *velerov1.Restore) {
	c.desk.Offer(offer.Job{Name: restore.Name, UID: restore.UID})
}

// delete removes the files of a restore once nobody writes them any more.
func (c *Controller) delete(ctx context.Context, restore *velerov1.Restore) (ctrl.Result, error) {
	if !restore.Status.Phase.Terminal() && !restore.Status.Phase.IsNew() && !c.free(restore) {
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	if err := c.cleaner.Clean(ctx, restore); err != nil {
		if ctx.Err() != nil || apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: soon}, nil
		}
		c.runner.cfg.Log.Warn("files of a deleted restore not removed yet", "restore", restore.Name, "error", err)
		return ctrl.Result{RequeueAfter: offer.Period}, nil
	}
	return ctrl.Result{}, nil
}

// Serve works on restores that no message announced, until ctx ends, and waits for the running ones.
func (c *Controller) Serve(ctx context.Context) error { return c.desk.Serve(ctx) }

// Succeed takes over the restores of instances that die, until ctx ends; no message is needed for that.
func (c *Controller) Succeed(ctx context.Context, expired <-chan string) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case holder := <-expired:
			if err := c.orphans(ctx, holder); err != nil && ctx.Err() == nil {
				c.runner.cfg.Log.Warn("restores of a dead runner not listed; the next look finds them", "holder", holder, "error", err)
			}
		}
	}
}

func (c *Controller) orphans(ctx context.Context, holder string) error {
	var list velerov1.RestoreList
	if err := c.cached.List(ctx, &list, client.InNamespace(c.runner.cfg.Namespace)); err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		o := &list.Items[i]
		held, ok, err := claim.Parse(o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if ok && held.Holder == holder && begun(o.Status.Phase) {
			c.offer(o)
		}
	}
	return errors.Join(errs...)
}

// Census keeps count of the restores that exist, until ctx ends.
func (c *Controller) Census(ctx context.Context) error {
	ticker := c.runner.cfg.Clock.NewTicker(offer.Period)
	defer ticker.Stop()
	for {
		var list velerov1.RestoreList
		if err := c.cached.List(ctx, &list, client.InNamespace(c.runner.cfg.Namespace)); err == nil {
			c.runner.cfg.Metrics.Exist(len(list.Items))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}
