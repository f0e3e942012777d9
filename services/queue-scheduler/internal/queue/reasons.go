package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// The rate of log lines and Events about jobs that wait is bounded: one job that ends may change
// the reasons of ten thousand. What is held back is reported by a later pass, if it still holds
// then.
const (
	eventRate  = 10 // a second
	eventBurst = 100
)

// reasonKey is a reason without its wording: the same one is not reported again.
type reasonKey struct {
	kind byte // full, overlap, behind, away
	name string
}

// cause is why a job waits: one of them, or none for any other error.
type cause struct {
	full    *ledger.FullError
	overlap *ledger.OverlapError
	behind  *behindError
	away    *awayError
}

// causeOf sorts a reason. An admission returns it unwrapped, which is the fast path; others wrap it.
func causeOf(reason error) cause {
	switch bare := reason.(type) { //nolint:errorlint // wrapped ones come next
	case *ledger.FullError:
		return cause{full: bare}
	case *ledger.OverlapError:
		return cause{overlap: bare}
	case *behindError:
		return cause{behind: bare}
	case *awayError:
		return cause{away: bare}
	}
	return wrapped(reason)
}

func wrapped(reason error) (b cause) {
	_ = errors.As(reason, &b.overlap) || errors.As(reason, &b.behind) || errors.As(reason, &b.full) || errors.As(reason, &b.away)
	return b
}

// reasonOf is the key of the reason why a job waits, with the namespaces in conflict; false for
// any other error.
func reasonOf(reason error) (reasonKey, []string, bool) {
	switch b := causeOf(reason); {
	case b.overlap != nil:
		return reasonKey{'o', string(b.overlap.With.UID)}, b.overlap.Namespaces, true
	case b.behind != nil:
		return reasonKey{'b', b.behind.name}, b.behind.namespaces, true
	case b.full != nil:
		return reasonKey{'f', ""}, nil, true
	case b.away != nil:
		return reasonKey{'a', b.away.message}, nil, true
	}
	return reasonKey{}, nil, false
}

// reasons are why jobs wait, each logged and recorded as an Event once. Only passes use it.
type reasons struct {
	reported map[types.UID]reasonKey // the last reason reported for a job that waits
	limiter  *rate.Limiter           // of what is reported about jobs that wait
	clock    clock.PassiveClock
	events   Events
	log      *slog.Logger
}

// reportOrFail reports why a job waits; any other error is returned.
func (r *reasons) reportOrFail(obj client.Object, reason error) error {
	if _, _, waits := reasonOf(reason); !waits {
		return reason
	}
	r.report(obj, reason)
	return nil
}

// report logs why a job waits, and makes an Event of a conflict, once per reason.
func (r *reasons) report(obj client.Object, reason error) {
	key, namespaces, _ := reasonOf(reason)
	if r.reported[obj.GetUID()] == key || !r.limiter.AllowN(r.clock.Now(), 1) {
		return
	}
	r.reported[obj.GetUID()] = key
	if key.kind == 'a' {
		r.log.Warn("backup waits for its location", "name", obj.GetName(), "reason", reason)
		r.events.Eventf(obj, nil, corev1.EventTypeWarning, "LocationUnavailable", "Queue", "%s", clipped(reason.Error()))
		return
	}
	if len(namespaces) == 0 {
		r.log.Info("job waits", "kind", kindOf(obj), "name", obj.GetName(), "reason", reason)
		return
	}
	r.log.Info("job passed over", "kind", kindOf(obj), "name", obj.GetName(), "reason", reason, "namespaces", namespaces)
	r.events.Eventf(obj, nil, corev1.EventTypeNormal, "PassedOver", "Queue", "%v", reason)
}

type noEvents struct{}

// Eventf implements Events.
func (noEvents) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

func kindOf(obj client.Object) string {
	if _, restore := obj.(*velerov1.Restore); restore {
		return ledger.KindRestore
	}
	return ledger.KindBackup
}

// reportAdmission reports that a backup left the queue, and after how long.
func (r *reasons) reportAdmission(ctx context.Context, b *velerov1.Backup, waited time.Duration) {
	r.log.InfoContext(ctx, "backup admitted", "backup", b.Name, "waited", waited)
	r.events.Eventf(b, nil, corev1.EventTypeNormal, "Admitted", "Start", "ready to start after waiting %s", waited.Round(time.Second))
}

// forget drops notes about jobs that wait no more.
func (r *reasons) forget(v *view) {
	if len(r.reported) == 0 {
		return
	}
	kept := make(map[types.UID]reasonKey, len(r.reported))
	keep := func(uid types.UID) {
		if key, ok := r.reported[uid]; ok {
			kept[uid] = key
		}
	}
	for _, b := range v.queued {
		keep(b.UID)
	}
	for _, waiting := range v.pending {
		keep(waiting.UID)
	}
	r.reported = kept
}
