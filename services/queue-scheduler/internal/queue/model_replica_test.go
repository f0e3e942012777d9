package queue_test

import (
	"context"
	"errors"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/settings"
)

// actor is one scheduler of a history. It stops before each of its calls to the API server until it
// is let on, and is killed between two of them.
type actor struct {
	client.Client
	h      *history
	pass   *queue.Scheduler
	yield  func(struct{}) bool
	next   func() (struct{}, bool)
	stop   func()
	busy   bool
	dead   bool
	clock  *clocktesting.FakeClock // stands still during a pass
	limits ledger.Limits           // as it read them last
	// What it listed last: all it can know of the queue.
	known    []velerov1.Backup
	restores map[types.UID]bool // that were new and whose targets were known
	targets  [][]string         // what those write to
	away     map[string]bool    // locations that were unavailable to it in this pass
}

// Away notes whether a location is unavailable to the actor.
func (a *actor) Away(ctx context.Context, b *velerov1.Backup) (string, error) {
	message, err := a.h.rules.Away(ctx, b)
	a.away[b.Spec.StorageLocation] = message != ""
	return message, err
}

// hearing is a validator that notes its answers to an actor.
type hearing struct {
	*rules
	actor *actor
}

func (v hearing) Away(ctx context.Context, b *velerov1.Backup) (string, error) {
	return v.actor.Away(ctx, b)
}

var errKilled = errors.New("killed")

func (h *history) newActor() *actor {
	a := &actor{Client: h.store, h: h, clock: clocktesting.NewFakeClock(h.now)}
	a.pass = newQueue(a, nil, withValidator(hearing{h.rules, a}), func(c *queue.Config) {
		c.Ageing, c.ClaimTimeout, c.Clock = ageing, claimTimeout, a.clock
		c.Limits = settings.New(settings.Config{Reader: a, Namespace: "velero", Events: counter{}, Log: c.Log}).Limits
	})
	return a
}

// advanceCall lets the actor make its next call, or begin a pass.
func (a *actor) advanceCall() {
	if !a.busy {
		a.busy = true
		a.clock.SetTime(a.h.now)
		a.away = map[string]bool{}
		a.next, a.stop = iter.Pull(func(yield func(struct{}) bool) {
			a.yield = yield
			_ = a.pass.Pass(a.h.ctx) // injected faults end passes; the next one continues
		})
	}
	a.h.acting = a
	if _, more := a.next(); !more {
		a.busy = false
	}
}

// finishPass lets the pass that was begun come to its end.
func (a *actor) finishPass() {
	for a.busy {
		a.advanceCall()
	}
}

// killActor ends the actor between two calls.
func (a *actor) killActor() {
	if a.busy {
		a.stop()
	}
}

func (a *actor) awaitTurn() error {
	if !a.dead && !a.yield(struct{}{}) {
		a.dead = true
	}
	if a.dead {
		return errKilled
	}
	return nil
}

func (a *actor) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := a.awaitTurn(); err != nil {
		return err
	}
	err := a.Client.Get(ctx, key, obj, opts...)
	if err != nil {
		return err
	}
	if key.Name == settings.Name {
		a.limits = a.h.limits
	}
	a.learnObject(obj)
	return nil
}

// learnObject notes that a backup it listed as new is in the queue by now.
func (a *actor) learnObject(obj client.Object) {
	b, ok := obj.(*velerov1.Backup)
	if !ok || b.Status.Phase != velerov1.BackupPhaseQueued {
		return
	}
	for i := range a.known {
		if a.known[i].UID == b.UID && a.known[i].Status.Phase.IsNew() {
			b.DeepCopyInto(&a.known[i])
		}
	}
}

func (a *actor) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := a.awaitTurn(); err != nil {
		return err
	}
	if err := a.h.listFromPast(ctx, list); err != nil {
		return err
	}
	if backups, ok := list.(*velerov1.BackupList); ok {
		a.known = backups.DeepCopy().Items
	}
	if restores, ok := list.(*velerov1.RestoreList); ok {
		a.restores, a.targets = map[types.UID]bool{}, nil
		for i := range restores.Items {
			r := &restores.Items[i]
			validated := r.Annotations[holdfast.AnnotationValidated] != ""
			if targets := validate.Targets(&r.Spec); r.Status.Phase.IsNew() && (validated || !ledger.IsAll(targets)) {
				a.restores[r.UID], a.targets = true, append(a.targets, validate.Targets(&r.Spec))
			}
		}
	}
	return nil
}

func (a *actor) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return a.writeInTurn(func() error { return a.Client.Create(ctx, obj, opts...) })
}

func (a *actor) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return a.writeInTurn(func() error { return a.Client.Update(ctx, obj, opts...) })
}

func (a *actor) Patch(ctx context.Context, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
	err := a.writeInTurn(func() error { return a.Client.Patch(ctx, obj, p, opts...) })
	if err == nil {
		a.learnObject(obj)
	}
	return err
}

// writeInTurn carries out a write, refuses it, or carries it out and loses the answer.
func (a *actor) writeInTurn(do func() error) error {
	if err := a.awaitTurn(); err != nil {
		return err
	}
	fault := a.h.random.IntN(40)
	if a.h.calm || fault > 1 {
		err := do()
		a.h.checkWrite(a)
		return err
	}
	if fault == 0 {
		return apierrors.NewConflict(resource, "any", errDown)
	}
	err := errors.Join(do(), errDown)
	a.h.checkWrite(a)
	return err
}
