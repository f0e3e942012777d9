package queue

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// hintSender sends hints to runners and events to caches, and records the end of jobs for people.
type hintSender struct {
	publisher Publisher
	events    Events
	clock     clock.PassiveClock
	log       *slog.Logger
}

// republishHints sends the hints of what waits for a runner: messages may be lost, and one that is
// pending already costs nothing.
func (h *hintSender) republishHints(ctx context.Context, v *passView) error {
	var errs []error
	for _, b := range v.ready {
		errs = append(errs, h.publishHint(messaging.WithTrace(ctx, b), b))
	}
	for _, e := range v.entries {
		if e.Kind != ledger.KindRestore {
			continue
		}
		r, ok := v.traced[e.UID]
		if !ok {
			r = &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: e.UID}}
		}
		errs = append(errs, h.publishHint(messaging.WithTrace(ctx, r), r))
	}
	return errors.Join(errs...)
}

// hintJob sends the hint of an admitted job. The next pass makes a loss good.
func (h *hintSender) hintJob(ctx context.Context, job client.Object) {
	if err := h.publishHint(ctx, job); err != nil {
		h.log.WarnContext(ctx, "Failed to publish hint; will retry with the next pass", "kind", kindOf(job), "name", job.GetName(), "error", err)
	}
}

func (h *hintSender) publishHint(ctx context.Context, job client.Object) error {
	kind, what := kindOf(job), messaging.WorkBackupRun
	if kind == ledger.KindRestore {
		what = messaging.WorkRestoreRun
	}
	return h.publisher.Publish(ctx, what, &workv1.Hint{Kind: kind, Namespace: job.GetNamespace(), Name: job.GetName(), Uid: string(job.GetUID())})
}

// announcePhase publishes a phase, and records a terminal one on the object. A receiver that
// misses it reads the object.
func (h *hintSender) announcePhase(ctx context.Context, obj client.Object, phase string) {
	kind := kindOf(obj)
	mark.RecordEnd(h.events, obj)
	err := h.publisher.PublishEvent(ctx, &eventv1.Event{
		Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), Uid: string(obj.GetUID()), Phase: phase,
		Time: timestamppb.New(h.clock.Now()),
	})
	if err != nil {
		h.log.DebugContext(ctx, "Failed to publish event; receivers have to read the object", "kind", kind, "name", obj.GetName(), "error", err)
	}
}
