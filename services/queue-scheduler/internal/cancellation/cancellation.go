// Package cancellation ends jobs with a request to cancel.
//
// A job that no process works on ends by one write. One that runs is left to its holder, which
// reads the request on the object. A holder that does not stop it in time loses the claim, and any
// runner ends the job.
//
// Every replica does this, for every job it observes: all of it is decided by compare-and-swap, so
// that the first one wins.
package cancellation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
)

// Reasons of refused requests, for machines.
const (
	// ReasonEnded: the job has ended.
	ReasonEnded = "JOB_ENDED"
	// ReasonCommitting: the job is about to end.
	ReasonCommitting = "JOB_COMMITTING"
)

// Events publishes phases; messaging.Client is one.
type Events interface {
	PublishEvent(ctx context.Context, event *eventv1.Event) error
}

// Counter counts jobs that ended, whoever ends them.
type Counter interface {
	// Ended counts a Backup or Restore that got a terminal phase.
	Ended(obj client.Object)
}

// Config is what a Canceller works with. All fields but Recorder are required.
type Config struct {
	Reader    client.Reader // uncached
	Client    client.Client
	Namespace string
	// Deadline is how long a holder has to stop a job.
	Deadline time.Duration
	// DefaultTTL is that of backups that name none.
	DefaultTTL time.Duration
	Events     Events
	// Recorder records Events of Kubernetes about jobs; nil records none.
	Recorder mark.Events
	Metrics  *Metrics
	// Counts gets the jobs that end here.
	Counts Counter
	Clock  clock.WithTicker
	Log    *slog.Logger
}

// Canceller stops jobs. Safe for concurrent use.
type Canceller struct {
	Config

	mu       sync.Mutex
	observed map[string]jobObservation
}

// New returns a Canceller.
func New(cfg Config) *Canceller {
	return &Canceller{Config: cfg, observed: map[string]jobObservation{}}
}

// AskBackup requests that a backup stop, in the name of by, and returns its newest state. One that
// no process works on has ended then. Asking twice is asking once. The error wraps
// errgrpc.ErrPrecondition when it is too late.
func (c *Canceller) AskBackup(ctx context.Context, name, by string) (*velerov1.Backup, error) {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	return b, requestCancel(ctx, c, backups, b, by)
}

// AskRestore is AskBackup for a restore.
func (c *Canceller) AskRestore(ctx context.Context, name, by string) (*velerov1.Restore, error) {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	return r, requestCancel(ctx, c, restores, r, by)
}

func requestCancel[T client.Object](ctx context.Context, c *Canceller, k *jobKind[T], obj T, by string) error {
	ended := false
	err := kube.Update(ctx, c.Reader, c.Client, obj, func(o T) error {
		ended = false
		switch k.stage(o) {
		case mark.StageEnded:
			if k.cancelled(o) {
				return kube.ErrSkip
			}
			return refusalError(ReasonEnded, "%s %q has ended: %s", k.name, o.GetName(), k.phase(o))
		case mark.StageClosing:
			return refusalError(ReasonCommitting, "%s %q is about to end", k.name, o.GetName())
		case mark.StageRunning:
			return mark.WriteCancelRequest(o, mark.CancelRequest{By: by, Time: c.currentTime().Time})
		case mark.StageWaiting:
		}
		if err := mark.WriteCancelRequest(o, mark.CancelRequest{By: by, Time: c.currentTime().Time}); err != nil {
			return err
		}
		ended = k.endRequested(o, c.currentTime(), c.DefaultTTL)
		return nil
	})
	if err != nil {
		return fmt.Errorf("cancel %s %q: %w", k.name, obj.GetName(), err)
	}
	c.Log.InfoContext(ctx, "Cancellation of job requested", "kind", k.name, "name", obj.GetName(), "by", by, "phase", k.phase(obj))
	if ended {
		reportEnded(ctx, c, k, obj)
	}
	return nil
}

func refusalError(reason, format string, args ...any) error {
	return errgrpc.WithReason(fmt.Errorf("%w: %s", errgrpc.ErrPrecondition, fmt.Sprintf(format, args...)), reason, nil)
}

// endWaiting ends a job that waits and was asked to stop. One that is claimed meanwhile is its holder's.
func endWaiting[T client.Object](ctx context.Context, c *Canceller, k *jobKind[T], obj T) error {
	ended := false
	err := kube.Update(ctx, c.Reader, c.Client, obj, func(o T) error {
		ended = o.GetDeletionTimestamp() == nil && k.stage(o) == mark.StageWaiting && k.endRequested(o, c.currentTime(), c.DefaultTTL)
		if !ended {
			return kube.ErrSkip
		}
		return nil
	})
	if client.IgnoreNotFound(err) == nil || errors.Is(err, kube.ErrReplaced) {
		if err == nil && ended {
			failpoint.Hit("queue-scheduler/cancel-ended")
			reportEnded(ctx, c, k, obj)
		}
		return nil
	}
	return fmt.Errorf("cancel %s %q: %w", k.name, obj.GetName(), err)
}

// reportEnded counts, logs, records and publishes a job that this service ended.
func reportEnded[T client.Object](ctx context.Context, c *Canceller, k *jobKind[T], obj T) {
	c.Metrics.count(k.name, "waiting")
	c.Counts.Ended(obj)
	mark.RecordEnd(c.Recorder, obj)
	c.Log.InfoContext(ctx, "Job cancelled", "kind", k.name, "name", obj.GetName(), "phase", k.phase(obj))
	err := c.Events.PublishEvent(ctx, &eventv1.Event{
		Kind: k.name, Namespace: obj.GetNamespace(), Name: obj.GetName(), Uid: string(obj.GetUID()), Phase: k.phase(obj),
		Time: timestamppb.New(c.Clock.Now()),
	})
	if err != nil {
		c.Log.DebugContext(ctx, "Failed to publish event; receivers have to read the object", "kind", k.name, "name", obj.GetName(), "error", err)
	}
}

// currentTime has the precision JSON keeps.
func (c *Canceller) currentTime() metav1.Time {
	return metav1.NewTime(c.Clock.Now().UTC().Truncate(time.Second))
}
