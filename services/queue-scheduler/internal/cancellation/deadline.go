package cancellation

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// operationGrace is how long async-operation-monitor has to cancel the operations of a job that
// waits for them, before a runner ends the job without their ends. It cannot be derived: the grace
// period is that service's flag. It suffices for two calls to cancel, half a grace period apart,
// and two polls as long as twice --item-operation-cancel-grace-period plus twice
// --item-operation-sync-frequency is less; the defaults need 2m20s.
const operationGrace = 5 * time.Minute

// errNotOverdue means that the job changed since it was read: it ended, has another claim, began to
// commit, or is not cancelled any more.
var errNotOverdue = errors.New("the job is not overdue any more")

// jobObservation is since when this process has seen a cancelled job under one claim, waiting for operations or not, by its own
// clock: clocks differ.
type jobObservation struct {
	uid   types.UID
	held  claim.Claim
	waits bool
	since time.Time
	// deadline is how long the holder has. It doubles with each claim that this process takes away.
	deadline time.Duration
}

// timeLeft returns how long the job is left to its holder, to the runner that is to take it, or to
// async-operation-monitor where the job waits for operations.
func (c *Canceller) timeLeft(key string, uid types.UID, held claim.Claim, waits bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now()
	s, ok := c.observed[key]
	if !ok || s.uid != uid {
		s = jobObservation{uid: uid, held: held, waits: waits, since: now, deadline: c.Deadline}
	}
	if s.held != held || s.waits != waits {
		s.held, s.waits, s.since = held, waits, now
	}
	c.observed[key] = s
	limit := s.deadline
	switch {
	case waits:
		limit = operationGrace
	case held.Owner == "":
		limit = c.Deadline
	}
	return limit - now.Sub(s.since)
}

// doubleDeadline gives later holders of the job more time: what a runner that ends it has to do may
// take long.
func (c *Canceller) doubleDeadline(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.observed[key]; ok {
		s.deadline *= 2
		c.observed[key] = s
	}
}

func (c *Canceller) forgetJob(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.observed, key)
}

// awaitEnd leaves a cancelled job to its holder until the deadline, and takes the claim away then.
func awaitEnd[T client.Object](ctx context.Context, c *Canceller, k *jobKind[T], obj T) (reconcile.Result, error) {
	held, found, err := claim.Parse(obj)
	if err != nil || !found {
		return reconcile.Result{}, nil //nolint:nilerr // no process can take it; its runners end such a job
	}
	key := k.name + "/" + obj.GetName()
	if left := c.timeLeft(key, obj.GetUID(), held, k.waits(obj)); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if held.Owner == "" && !k.waits(obj) {
		reportUnclaimed(ctx, c, k, obj)
		return reconcile.Result{RequeueAfter: c.Deadline}, nil
	}
	switch err := takeClaim(ctx, c, k, obj, held); {
	case errors.Is(err, errNotOverdue), errors.Is(err, kube.ErrReplaced), apierrors.IsNotFound(err):
		return reconcile.Result{}, nil // its next version is looked at
	case err != nil:
		return reconcile.Result{}, err
	}
	c.doubleDeadline(key)
	return reconcile.Result{RequeueAfter: c.Deadline}, nil
}

// takeClaim gives the claim of a job an epoch without a holder: the former holder is fenced, and any
// runner, also the same one, ends the job. One that waits for operations waits no more.
func takeClaim[T client.Object](ctx context.Context, c *Canceller, k *jobKind[T], obj T, from claim.Claim) error {
	err := kube.Update(ctx, c.Reader, c.Client, obj, func(o T) error {
		held, _, err := claim.Parse(o)
		_, asked := mark.CancelRequested(o)
		if err != nil || held != from || !asked || k.stage(o) != mark.StageRunning || o.GetDeletionTimestamp() != nil {
			return errNotOverdue
		}
		k.finalize(o)
		return claim.Set(o, claim.Claim{Epoch: from.Epoch + 1, Panics: from.Panics})
	})
	if err != nil {
		return fmt.Errorf("take the claim of %s %q: %w", k.name, obj.GetName(), err)
	}
	failpoint.Hit("queue-scheduler/cancel-taken")
	c.Metrics.count(k.name, "overdue")
	c.Log.WarnContext(ctx, "Cancelled job is overdue; its claim was taken for another runner",
		"kind", k.name, "name", obj.GetName(), "holder", from.Owner, "epoch", from.Epoch+1)
	return nil
}

// reportUnclaimed says on the job that it waits for a runner.
func reportUnclaimed[T client.Object](ctx context.Context, c *Canceller, k *jobKind[T], obj T) {
	c.Log.WarnContext(ctx, "Cancelled job waits for a runner to end it", "kind", k.name, "name", obj.GetName(), "service", k.runner)
	if c.Recorder != nil {
		c.Recorder.Eventf(obj, nil, corev1.EventTypeWarning, "WaitingForRunner", "Cancel",
			"the job is cancelled, and no %s has taken it to end it; is one running?", k.runner)
	}
}
