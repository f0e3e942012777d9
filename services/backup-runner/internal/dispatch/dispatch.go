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
	"maps"
	"sync"
	"time"

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
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// Period is how often a backup that waits for a runner is looked at.
const Period = 15 * time.Second

// overdue is how long a backup may wait for the effect of its hint: the queue may
// hold one that it never delivers, and then refuses every other.
const overdue = 2 * Period

// failurePause is how long a backup whose run failed here is not run again without
// a message: it was handed over at once, and is seen at once.
const failurePause = 10 * time.Second

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

	mu      sync.Mutex
	waiting map[types.NamespacedName]time.Time // since when each backup is seen waiting
	offered chan offer
	failed  map[types.UID]time.Time // when the last run of each backup failed here
}

// offer is a backup this process should try to run itself.
type offer struct {
	name string
	uid  types.UID
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
		d.since(req.NamespacedName, false)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !awaitsRunner(b.Status.Phase) {
		d.since(req.NamespacedName, false)
		return ctrl.Result{}, nil
	}
	again := ctrl.Result{RequeueAfter: Period}
	var held *claim.HeldError
	if d.Runs.Active(b.UID) {
		d.since(req.NamespacedName, false)
		return again, nil
	}
	if _, err := d.Instance.Take(b.DeepCopy()); errors.As(err, &held) {
		d.since(req.NamespacedName, false)
		return again, nil // asking also begins to watch that holder
	}
	hint := &workv1.Hint{Kind: "Backup", Namespace: b.Namespace, Name: b.Name, Uid: string(b.UID)}
	err := d.Publisher.Publish(fabric.WithTrace(ctx, &b), fabric.WorkBackupRun, hint)
	if err != nil {
		d.Log.WarnContext(ctx, "hint not published, looking without", "backup", b.Name, "error", err)
	}
	waited := d.since(req.NamespacedName, true)
	if err != nil || waited >= overdue || b.Status.Phase != velerov1.BackupPhaseReadyToStart {
		d.offer(offer{b.Name, b.UID})
	}
	return again, nil
}

// since notes whether a backup waits and returns for how long it has.
func (d *Dispatcher) since(key types.NamespacedName, waits bool) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !waits {
		delete(d.waiting, key)
		return 0
	}
	first, known := d.waiting[key]
	if !known {
		first = d.Clock.Now()
		if d.waiting == nil {
			d.waiting = map[types.NamespacedName]time.Time{}
		}
		d.waiting[key] = first
	}
	return d.Clock.Since(first)
}

// offers is the channel of what Takeovers should try; what finds no room is
// offered again at the next look.
func (d *Dispatcher) offers() chan offer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.offered == nil {
		d.offered = make(chan offer, 64)
	}
	return d.offered
}

func (d *Dispatcher) offer(o offer) {
	if d.failedLately(o.uid) {
		return
	}
	select {
	case d.offers() <- o:
	default:
	}
}

func (d *Dispatcher) failedLately(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.Clock.Now()
	maps.DeleteFunc(d.failed, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= failurePause })
	_, ok := d.failed[uid]
	return ok
}

func (d *Dispatcher) fail(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		d.failed = map[types.UID]time.Time{}
	}
	d.failed[uid] = d.Clock.Now()
}

// Takeovers runs the backups of dying holders, and those no message announced,
// until ctx ends, then waits for those it began.
func (d *Dispatcher) Takeovers(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	done := make(chan struct{}, unannounced)
	for running := 0; ; {
		offered := d.offers()
		if running == unannounced {
			offered = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case holder := <-d.Instance.Expired():
			d.takeOver(ctx, holder, &group)
		case <-done:
			running--
		case o := <-offered:
			running++
			group.Go(func() {
				defer func() { done <- struct{}{} }()
				d.run(ctx, o.name, o.uid)
			})
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
		group.Go(func() { d.run(ctx, b.Name, b.UID) })
	}
}

// run survives whatever the job does: it is on a goroutine of its own.
func (d *Dispatcher) run(ctx context.Context, name string, uid types.UID) {
	defer func() {
		if p := recover(); p != nil {
			d.Log.ErrorContext(ctx, "job panicked", "backup", name, "panic", p)
		}
	}()
	var held *claim.HeldError
	if err := d.Runs.Run(ctx, name, uid); err != nil && !errors.As(err, &held) && ctx.Err() == nil {
		d.fail(uid)
		d.Log.WarnContext(ctx, "run failed, reconciling tries again", "backup", name, "error", err)
	}
}
