package cancellation

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// again is the pause after something that may work later.
const again = 5 * time.Second

// operationGrace is how long async-operation-monitor has to cancel the operations of a job that
// waits for them, before the deadline of the job begins. It cannot be derived: the
// grace period is that service's flag. It suffices for two calls to cancel, half a grace period apart,
// and two polls as long as twice --item-operation-cancel-grace-period plus twice
// --item-operation-sync-frequency is less; the defaults need 2m20s. A job that is ended sooner has
// its operations cancelled all the same by a replica that follows it.
const operationGrace = 5 * time.Minute

// observation is since when this process has seen a request to cancel a job under one epoch, by its
// own clock: clocks differ. A later holder gets a new deadline, within a bound: first is when the
// request was seen under any epoch. tried is true once this process could not end the job.
type observation struct {
	uid          types.UID
	epoch        int64
	since, first time.Time
	tried        bool
}

// age is for how long a job has been seen asked to stop.
type age struct {
	epoch   time.Duration // under its claim's epoch
	request time.Duration // under any
	tried   bool          // this process could not end it, under any
}

// last reports whether an attempt to end the job at that age is the last one: limit has passed, and it
// is not the first attempt, which comes late where holders changed.
func (a age) last(passed, limit time.Duration) bool { return a.tried && passed >= limit }

// since returns for how long the job has been seen so.
func (c *Canceller) since(kind, name string, uid types.UID, epoch int64) age {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, now := kind+"/"+name, c.Clock.Now()
	s, ok := c.observed[key]
	if !ok || s.uid != uid {
		s = observation{uid: uid, epoch: epoch, since: now, first: now}
	}
	if s.epoch != epoch {
		s.epoch, s.since = epoch, now
	}
	c.observed[key] = s
	return age{epoch: now.Sub(s.since), request: now.Sub(s.first), tried: s.tried}
}

// failed notes that this process could not end a job.
func (c *Canceller) failed(kind, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.observed[kind+"/"+name]; ok {
		s.tried = true
		c.observed[kind+"/"+name] = s
	}
}

// requestTimeout is how long a request waits for holders that come one after the other, and for a
// bucket that is away.
func (c *Canceller) requestTimeout() time.Duration { return 2 * c.Deadline }

func (c *Canceller) forget(kind, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.observed, kind+"/"+name)
	delete(c.observed, kind+" with operations/"+name)
}

// errGone means that there is nothing to do any more: the job ended, has another holder, or began
// to commit.
var errGone = errors.New("the job is not this service's to end")

// conclusion ends a job whose claim this process has had for that long. With a time left it has to
// be called again after that.
type conclusion[T client.Object] func(ctx context.Context, obj T, mine claim.Claim, waited age) (left time.Duration, err error)

// await gives the holder its time, then takes the claim and ends the job.
func await[T client.Object](ctx context.Context, c *Canceller, k *kind[T], obj T, conclude conclusion[T]) (reconcile.Result, error) {
	held, _, err := claim.Parse(obj)
	if err != nil {
		return reconcile.Result{}, nil //nolint:nilerr // no process can take it; its runners end such a job
	}
	if k.waits(obj) && held.Holder != c.holder(obj, held.Epoch) {
		cancelling := c.since(k.name+" with operations", obj.GetName(), obj.GetUID(), held.Epoch)
		if left := operationGrace - cancelling.request; left > 0 {
			return reconcile.Result{RequeueAfter: left}, nil
		}
	}
	waited := c.since(k.name, obj.GetName(), obj.GetUID(), held.Epoch)
	if held.Holder != c.holder(obj, held.Epoch) {
		left := c.Deadline - waited.epoch
		if k.bounded {
			left = min(left, c.requestTimeout()-waited.request)
		}
		if left > 0 {
			return reconcile.Result{RequeueAfter: left}, nil
		}
		if held, err = takeOver(ctx, c, k, obj, held); err != nil {
			return c.over(ctx, err), nil
		}
		waited = c.since(k.name, obj.GetName(), obj.GetUID(), held.Epoch)
	}
	left, err := conclude(ctx, obj, held, waited)
	switch {
	case err != nil:
		c.failed(k.name, obj.GetName())
		return c.over(ctx, err), nil
	case left > 0:
		return reconcile.Result{RequeueAfter: left}, nil
	}
	c.forget(k.name, obj.GetName())
	return reconcile.Result{}, nil
}

// over is the result of an attempt that failed: it is made again, at a steady pace, unless the job
// is not this process's any more.
func (c *Canceller) over(ctx context.Context, err error) reconcile.Result {
	switch {
	case err == nil, errors.Is(err, errGone), errors.Is(err, claim.ErrLost), errors.Is(err, kube.ErrReplaced), apierrors.IsNotFound(err):
		return reconcile.Result{}
	}
	c.Log.WarnContext(ctx, "cancelled job not ended yet", "error", err)
	return reconcile.Result{RequeueAfter: again}
}

// holder is another name for each claim: runners count the timeout of a name without a Lease from
// when they first read it, so a name that they have read before would be dead at once.
func (c *Canceller) holder(o client.Object, epoch int64) string {
	return fmt.Sprintf("%s-%s-%d", c.Instance, o.GetUID(), epoch)
}

// takeOver acquires the claim of a holder that did not stop the job in time.
func takeOver[T client.Object](ctx context.Context, c *Canceller, k *kind[T], obj T, from claim.Claim) (claim.Claim, error) {
	mine := claim.Claim{Holder: c.holder(obj, from.Epoch+1), Epoch: from.Epoch + 1}
	err := kube.Update(ctx, c.Reader, c.Client, obj, func(o T) error {
		held, _, err := claim.Parse(o)
		_, asked := cancel.Requested(o)
		if err != nil || held != from || !asked || k.stage(o) != cancel.Running || o.GetDeletionTimestamp() != nil {
			return errGone
		}
		return claim.Set(o, mine)
	})
	if err != nil {
		return mine, fmt.Errorf("take over %s %q: %w", k.name, obj.GetName(), err)
	}
	failpoint.Hit("queue-scheduler/cancel-taken")
	c.Log.WarnContext(ctx, "cancelled job was not stopped in time, taken over", "kind", k.name, "name", obj.GetName(), "holder", from.Holder, "epoch", mine.Epoch)
	return mine, nil
}

// finish writes the end of a job whose claim is still this process's.
func finish[T client.Object](ctx context.Context, c *Canceller, k *kind[T], obj T, mine claim.Claim, write func(T) bool) error {
	final, err := engine.Finish[T]{
		Service: "queue-scheduler", Reader: c.Reader, Client: c.Client, Object: obj, Claim: mine,
		Terminal: func(o T) bool { return k.stage(o) == cancel.Ended },
		Retry:    retry.Loop{Clock: c.Clock, Log: c.Log},
	}.Write(ctx, func(o T) error {
		if !write(o) {
			return errGone // the request was withdrawn
		}
		return nil
	})
	if errors.Is(err, engine.ErrEnded) {
		err = errGone
	}
	if err != nil {
		return fmt.Errorf("end %s %q: %w", k.name, obj.GetName(), err)
	}
	reportEnded(ctx, c, k, final, "overdue")
	return nil
}
