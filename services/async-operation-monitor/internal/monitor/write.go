package monitor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// notePeriod is how often the progress of operations is written into their job.
const notePeriod = 10 * time.Second

// advancePhase writes the phase that follows, for all operations have ended.
func advancePhase[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], obj T, sum operation.Summary) error {
	return movePhase(ctx, m, k, obj, sum.Failed > 0, func(obj T, now jobStatus) error {
		*now.completed, *now.failed = sum.Completed, sum.Failed
		return sum.WriteSummary(obj)
	})
}

// abandonJob moves a job on whose operations are not known: they count as failed, and the runner
// reports that.
func abandonJob[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], obj T, reason error) error {
	m.Log.ErrorContext(ctx, "Failed to follow the operations of a job; counting them as failed", "kind", k.name, "name", obj.GetName(), "error", reason)
	m.Events.Eventf(obj, nil, corev1.EventTypeWarning, "OperationsUnknown", "Poll", "the operations cannot be followed: %.512s", reason.Error())
	return movePhase(ctx, m, k, obj, true, func(T, jobStatus) error { return nil })
}

// movePhase writes the phase that follows together with a further change, unless the job waits no more.
func movePhase[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], obj T, failed bool, change func(T, jobStatus) error) error {
	err := kube.Update(ctx, m.Reader, m.Client, obj, func(obj T) error {
		now := k.status(obj)
		if !k.isWaiting(obj) {
			return kube.ErrSkip
		}
		next := nextPhases[*now.phase]
		*now.phase = next[0]
		if failed {
			*now.phase = next[1]
		}
		return change(obj, now)
	})
	if isJobGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("move %s %q on: %w", k.name, obj.GetName(), err)
	}
	k.moved()
	m.Log.InfoContext(ctx, "All operations of a job have ended", "kind", k.name, "name", obj.GetName())
	return nil
}

// isJobGone reports whether an object was deleted, or another one has its name.
func isJobGone(err error) bool { return apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) }

// noteProgress writes how far the operations are, when one has ended and else once a period. A failure is
// left to the next poll.
func noteProgress[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], e *jobEntry, obj T) {
	sum, now := e.job.Summary(), m.Clock.Now()
	ended := sum.Completed+sum.Failed != e.noted.Completed+e.noted.Failed
	if reflect.DeepEqual(sum, e.noted) || !ended && now.Sub(e.notedTime) < notePeriod {
		return
	}
	err := kube.Update(ctx, m.Reader, m.Client, obj, func(obj T) error {
		if !k.isWaiting(obj) {
			return kube.ErrSkip
		}
		s := k.status(obj)
		*s.completed, *s.failed = sum.Completed, sum.Failed
		if sum.Failed > 0 {
			*s.phase = velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
		}
		return sum.WriteSummary(obj)
	})
	if err != nil && !isJobGone(err) {
		m.Log.WarnContext(ctx, "Failed to write the progress of operations; will retry", "kind", k.name, "name", obj.GetName(), "error", err)
		return
	}
	e.noted, e.notedTime = sum, now
}
