package job

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

const (
	// lookAgain is how often every unfinished restore is looked at, whatever messages say.
	lookAgain = 15 * time.Second
	// soon is the pause before a deleted restore is looked at whose job is still stopping.
	soon = time.Second
	// offers is how many restores may wait to be looked at; others are found by the next look.
	offers = 64
	// overdue is how long a restore may wait for the effect of its hint: the queue may hold one that it never delivers, and then
	// refuses every other.
	overdue = 2 * lookAgain
)

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
	offered chan offer
	atOnce  int

	mu      sync.Mutex
	waiting map[types.NamespacedName]time.Time // since when each restore is seen waiting
}

type offer struct {
	name string
	uid  types.UID
}

// NewController returns a controller. cached may be a cache; publish sends a restore.run hint; atOnce is how many restores that
// no message announced are worked on at once.
func NewController(runner *Runner, cached client.Reader, publish func(ctx context.Context, hint *workv1.Hint) error, cleaner Cleaner, atOnce int) *Controller {
	return &Controller{runner: runner, cached: cached, publish: publish, cleaner: cleaner, offered: make(chan offer, offers), atOnce: max(atOnce, 1),
		waiting: map[types.NamespacedName]time.Time{}}
}

// Setup registers the controller with a manager.
func (c *Controller) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("restore-runner").For(&velerov1.Restore{}).Complete(c)
}

// Reconcile implements reconcile.Reconciler.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	restore := &velerov1.Restore{}
	if err := c.cached.Get(ctx, req.NamespacedName, restore); err != nil {
		c.since(req.NamespacedName, false)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if restore.DeletionTimestamp != nil {
		c.since(req.NamespacedName, false)
		return c.delete(ctx, restore)
	}
	if restore.Status.Phase.Terminal() {
		c.since(req.NamespacedName, false)
		return ctrl.Result{}, nil
	}
	work, err := c.work(ctx, restore)
	if err != nil {
		return ctrl.Result{RequeueAfter: lookAgain}, err
	}
	waited := c.since(req.NamespacedName, work)
	if work {
		c.hint(ctx, restore)
	}
	if work && (restore.Status.Phase == velerov1.RestorePhaseInProgress || waited >= overdue) {
		c.offer(restore) // handed over, orphaned, or announced in vain: it goes on, whatever becomes of the hint
	}
	return ctrl.Result{RequeueAfter: lookAgain}, nil
}

// since notes whether a restore waits to be worked on and returns for how long it has.
func (c *Controller) since(key types.NamespacedName, waits bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !waits {
		delete(c.waiting, key)
		return 0
	}
	first, known := c.waiting[key]
	if !known {
		first = c.runner.cfg.Clock.Now()
		c.waiting[key] = first
	}
	return c.runner.cfg.Clock.Since(first)
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
	case restore.Status.Phase == velerov1.RestorePhaseInProgress:
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
	select {
	case c.offered <- offer{restore.Name, restore.UID}:
	default:
	}
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
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	return ctrl.Result{}, nil
}

// Serve works on restores that no message announced, until ctx ends, and waits for the running ones.
func (c *Controller) Serve(ctx context.Context) error {
	done := make(chan struct{}, offers)
	running := 0
	for {
		offered := c.offered
		if running >= c.atOnce {
			offered = nil // other replicas may have room for them
		}
		select {
		case <-ctx.Done():
			for ; running > 0; running-- {
				<-done
			}
			return nil
		case <-done:
			running--
		case o := <-offered:
			running++
			go func() {
				defer func() { done <- struct{}{} }()
				if err := c.runner.Run(ctx, o.name, o.uid); err != nil && ctx.Err() == nil {
					c.runner.cfg.Log.Warn("restore has to be tried again", "restore", o.name, "error", err)
				}
			}()
		}
	}
}

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
		if ok && held.Holder == holder && o.Status.Phase == velerov1.RestorePhaseInProgress {
			c.offer(o)
		}
	}
	return errors.Join(errs...)
}

// Census keeps count of the restores that exist, until ctx ends.
func (c *Controller) Census(ctx context.Context) error {
	ticker := c.runner.cfg.Clock.NewTicker(lookAgain)
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
