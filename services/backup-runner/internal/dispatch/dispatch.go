// Package dispatch finds the backups a runner should look at: those whose phase
// says so, and those whose holder died.
//
// It is what makes hints dispensable: a hint that got lost is published again
// within a period, what cannot be announced or is not taken up in spite of its
// hint is run here, and a takeover needs no message at all.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/offer"
	"github.com/holdfast-io/holdfast/pkg/suspend"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// unannounced bounds the backups run here at once without a message.
const unannounced = 4

// Publisher sends hints; fabric.Client is one.
type Publisher interface {
	Publish(ctx context.Context, what fabric.What, hint *workv1.Hint) error
}

// Instance knows which holders live; claim.Instance is one.
type Instance interface {
	Name() string
	Ready() bool
	Take(obj metav1.Object) (claim.Claim, error)
	Expired() <-chan string
}

// Runs runs backups; job.Runner is one.
type Runs interface {
	// Active reports whether this process runs the backup now.
	Active(uid types.UID) bool
	Run(ctx context.Context, name string, uid types.UID) error
}

// Dispatcher watches Backups. All fields are required.
type Dispatcher struct {
	Reader    client.Reader // may be a cache
	Namespace string
	Publisher Publisher
	Instance  Instance
	Runs      Runs
	Clock     clock.WithTicker
	Log       *slog.Logger

	once sync.Once
	desk *offer.Desk
}

// offers is where backups wait to be run without a message.
func (d *Dispatcher) offers() *offer.Desk {
	d.once.Do(func() {
		d.desk = offer.New(offer.Config{Run: d.Runs.Run, AtOnce: unannounced, Clock: d.Clock, Log: d.Log})
	})
	return d.desk
}

// Setup adds the controller to the manager.
func (d *Dispatcher) Setup(mgr ctrl.Manager) error {
	waiting := predicate.NewPredicateFuncs(func(o client.Object) bool {
		b, ok := o.(*velerov1.Backup)
		return ok && o.GetNamespace() == d.Namespace && awaitsRunner(b.Status.Phase)
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("backup-runner").
		For(&velerov1.Backup{}, builder.WithPredicates(waiting)).Complete(d)
	if err != nil {
		return fmt.Errorf("set up the backup controller: %w", err)
	}
	return nil
}

func awaitsRunner(p velerov1.BackupPhase) bool {
	switch p {
	case velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress,
		velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed:
		return true
	}
	return false
}

// Reconcile implements reconcile.Reconciler: it publishes a hint for a backup
// that nobody works on. One that was begun, that could not be announced, or whose
// hint had no effect for long is run here too: the first claim wins.
func (d *Dispatcher) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var b velerov1.Backup
	if err := d.Reader.Get(ctx, req.NamespacedName, &b); err != nil {
		d.offers().Waits(req.NamespacedName, false)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, suspended := suspend.Of(&b); suspended || !awaitsRunner(b.Status.Phase) {
		d.offers().Waits(req.NamespacedName, false)
		return ctrl.Result{}, nil
	}
	again := ctrl.Result{RequeueAfter: offer.Period}
	var held *claim.HeldError
	if d.Runs.Active(b.UID) {
		d.offers().Waits(req.NamespacedName, false)
		return again, nil
	}
	if _, err := d.Instance.Take(b.DeepCopy()); errors.As(err, &held) {
		d.offers().Waits(req.NamespacedName, false)
		return again, nil // asking also begins to watch that holder
	}
	hint := &workv1.Hint{Kind: "Backup", Namespace: b.Namespace, Name: b.Name, Uid: string(b.UID)}
	err := d.Publisher.Publish(fabric.WithTrace(ctx, &b), fabric.WorkBackupRun, hint)
	if err != nil {
		d.Log.WarnContext(ctx, "hint not published, looking without", "backup", b.Name, "error", err)
	}
	waited := d.offers().Waits(req.NamespacedName, true)
	if err != nil || waited >= offer.Overdue || b.Status.Phase != velerov1.BackupPhaseReadyToStart {
		d.offers().Offer(offer.Job{Name: b.Name, UID: b.UID})
	}
	return again, nil
}

// Takeovers runs the backups of dying holders, and those no message announced,
// until ctx ends, then waits for those it began.
func (d *Dispatcher) Takeovers(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { _ = d.offers().Serve(ctx) }) // it never fails
	for {
		select {
		case <-ctx.Done():
			return nil
		case holder := <-d.Instance.Expired():
			d.takeOver(ctx, holder, &group)
		}
	}
}

func (d *Dispatcher) takeOver(ctx context.Context, holder string, group *sync.WaitGroup) {
	var list velerov1.BackupList
	if err := d.Reader.List(ctx, &list, client.InNamespace(d.Namespace)); err != nil {
		d.Log.WarnContext(ctx, "backups of a dead holder not listed, reconciling will find them", "holder", holder, "error", err)
		return
	}
	for i := range list.Items {
		b := &list.Items[i]
		c, ok, err := claim.Parse(b)
		if err != nil || !ok || c.Holder != holder || !awaitsRunner(b.Status.Phase) {
			continue
		}
		d.Log.InfoContext(ctx, "taking over", "backup", b.Name, "holder", holder)
		group.Go(func() { d.offers().Run(ctx, offer.Job{Name: b.Name, UID: b.UID}) })
	}
}
