package monitor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

const (
	// busyPause is the pause before a job is looked at again that is being polled.
	busyPause = time.Second
	// overdue is how many pauses a job may wait for the effect of its hint.
	overdue = 3
)

// observeJob handles a job in the cache, and announces it if this process has not polled it for a
// while: its hint may be lost, or go to other replicas. It is polled here if it cannot be
// announced, if that has no effect, and at once if it has a request to cancel.
func observeJob[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], req reconcile.Request) (reconcile.Result, error) {
	obj := k.new()
	err := m.Client.Get(ctx, req.NamespacedName, obj)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	waits := err == nil && k.isWaiting(obj)
	e := m.jobs.followedJob(k.name + "/" + req.Name)
	if e != nil && (!waits || e.uid != obj.GetUID()) {
		if again, err := endFollowing(ctx, m, k, req.Name); err != nil || again > 0 {
			return reconcile.Result{RequeueAfter: again}, err
		}
	}
	if !waits || req.Namespace != m.Namespace {
		return reconcile.Result{}, nil
	}
	return observeWaiting(ctx, m, k, obj), nil
}

// observeWaiting handles a job that waits by the cache.
func observeWaiting[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], obj T) reconcile.Result {
	s := m.jobs.lastPoll(k.name+"/"+obj.GetName(), obj.GetUID(), m.Frequency)
	due := mustStop(obj) && !s.stopping
	if s.first || s.quiet >= s.pause {
		announced := announceJob(ctx, m, k, obj)
		due = due || !announced || s.quiet >= overdue*m.Frequency
	}
	if !due {
		return reconcile.Result{RequeueAfter: m.Frequency}
	}
	again, err := m.runGuarded(ctx, func() (time.Duration, error) { return pollJob(ctx, m, k, obj.GetName(), string(obj.GetUID())) })
	if err != nil {
		m.Log.WarnContext(ctx, "Failed to poll the operations of a job; will retry", "kind", k.name, "name", obj.GetName(), "error", err)
		again = m.Frequency
	}
	return reconcile.Result{RequeueAfter: again}
}

// announceJob publishes the hint of a job, and returns false if it could not.
func announceJob[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], obj T) bool {
	hint := &workv1.Hint{Kind: k.name, Namespace: obj.GetNamespace(), Name: obj.GetName(), Uid: string(obj.GetUID())}
	err := m.Bus.Publish(messaging.WithTrace(ctx, obj), messaging.WorkOperationPoll, hint)
	if err != nil && ctx.Err() == nil {
		m.Log.DebugContext(ctx, "Failed to publish a hint; polling the job without it", "kind", k.name, "name", obj.GetName(), "error", err)
	}
	return err == nil
}

// runGuarded turns a panic into an error: one job must not keep the others from being polled.
func (m *Monitor) runGuarded(ctx context.Context, do func() (time.Duration, error)) (again time.Duration, err error) {
	defer func() {
		if value := recover(); value != nil {
			m.Log.ErrorContext(ctx, "Poll panicked", "panic", value, "stack", string(debug.Stack()))
			err = errors.New("internal error")
		}
	}()
	return do()
}

// mustStop reports whether the operations of a job have to end.
func mustStop(obj client.Object) bool {
	_, asked := mark.CancelRequested(obj)
	return asked || obj.GetDeletionTimestamp() != nil
}

// pollJob polls the job of that name and UID once, and moves it on if all operations have ended. It returns
// after how long that has to be done again; 0 for a job that waits no more.
func pollJob[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], name, uid string) (again time.Duration, err error) {
	key := k.name + "/" + name
	e := m.jobs.beginPoll(key, types.UID(uid))
	if e == nil {
		return busyPause, nil
	}
	defer func() { m.jobs.endPoll(e, again) }()
	obj := k.new()
	err = m.Reader.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, obj)
	if client.IgnoreNotFound(err) == nil && (string(obj.GetUID()) != uid || !k.isWaiting(obj)) {
		return 0, nil // the controller stops following it
	}
	if err != nil {
		return 0, fmt.Errorf("read %s %q: %w", k.name, name, err)
	}
	again, err = followJob(ctx, m, k, e, obj)
	if err == nil && again == 0 {
		m.jobs.forgetJob(key, e)
	}
	return again, err
}

// followJob polls the operations of a job, or moves it on where they are not known.
func followJob[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], e *jobEntry, obj T) (again time.Duration, err error) {
	store, err := m.Files.Store(ctx, obj)
	if err == nil {
		defer func() {
			if err := store.Close(); err != nil {
				m.Log.WarnContext(ctx, "Failed to close bucket", "kind", k.name, "name", obj.GetName(), "error", err)
			}
		}()
		err = openOperations(ctx, m, k, e, store, obj)
	}
	switch {
	case err == nil:
		return pollOperations(ctx, m, k, e, store, obj)
	case errors.Is(err, operation.ErrDamaged), errors.Is(err, objectstore.ErrNotFound), errors.Is(err, errgrpc.ErrNotFound), noLocation(err):
		return 0, abandonJob(ctx, m, k, obj, err)
	}
	return 0, fmt.Errorf("read the operations of %s %q: %w", k.name, obj.GetName(), err)
}

// noLocation reports whether a location does not exist. A missing Secret of it may be created
// again.
func noLocation(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "backupstoragelocations"
}

// openOperations reads the operations of a job, unless they are in memory.
func openOperations[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], e *jobEntry, store objectstore.Store, obj T) error {
	if e.job != nil {
		return nil
	}
	job, err := m.Poller.Open(ctx, store, operation.Job{Kind: k.name, Name: obj.GetName(), UID: string(obj.GetUID())})
	if err != nil {
		return err
	}
	m.jobs.keepOperations(e, job)
	return nil
}

// pollOperations polls the operations of a job.
func pollOperations[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], e *jobEntry, store objectstore.Store, obj T) (time.Duration, error) {
	raw, err := operation.EncodeJob(obj, k.name)
	if err != nil {
		return 0, fmt.Errorf("encode %s %q: %w", k.name, obj.GetName(), err)
	}
	t := poll.Input{JSON: raw, Timeout: operationTimeout(k.status(obj))}
	m.jobs.notePolled(e, obj)
	if mustStop(obj) {
		t.Cancel = k.cancelled
		m.jobs.noteCancelled(e)
	}
	report, err := e.job.Poll(ctx, store, t)
	if errors.Is(err, operation.ErrDamaged) {
		return 0, abandonJob(ctx, m, k, obj, err)
	}
	for _, s := range report.Stalled {
		m.Log.WarnContext(ctx, "Operation made no progress", "kind", k.name, "name", obj.GetName(),
			"action", s.Operation.Action, "operation", s.Operation.ID, "item", s.Operation.Item.String(), "for", s.For)
	}
	m.reportStalled(obj, report.Stalled)
	switch {
	case errors.Is(err, objectstore.ErrReadOnly) && m.hasTimedOut(obj, k.status(obj), m.Poller.Grace): // nothing can be recorded
		return 0, abandonJob(ctx, m, k, obj, err)
	case err != nil:
		return 0, fmt.Errorf("poll the operations of %s %q: %w", k.name, obj.GetName(), err)
	case report.Ended:
		return 0, advancePhase(ctx, m, k, obj, e.job.Summary())
	}
	noteProgress(ctx, m, k, e, obj)
	return report.Next, nil
}

// maxEvents bounds the Events of one kind about operations of one job, for each poll.
const maxEvents = 5

func (m *Monitor) reportStalled(obj client.Object, list []poll.Stall) {
	for i, s := range list {
		if i == maxEvents {
			m.Events.Eventf(obj, nil, corev1.EventTypeWarning, "OperationStalled", "Poll", "%d more operations made no progress", len(list)-i)
			return
		}
		op := &s.Operation
		m.Events.Eventf(obj, nil, corev1.EventTypeWarning, "OperationStalled", "Poll", "operation %.128q of action %.128q for %.256s: no progress for %s",
			op.ID, op.Action, op.Item.String(), s.For.Round(time.Second))
	}
}
