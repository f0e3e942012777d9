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

// What is told about jobs that wait is bounded: one job that ends may change the reasons of ten
// thousand. What is held back is told by a later pass, if it still holds then.
const (
	tellRate  = 10 // a second
	tellBurst = 100
)

// said is a reason without its wording: telling it again would be no news.
type said struct {
	what byte // full, overlap, behind, away
	whom string
}

// because is why a job waits: one of them, or none for any other error.
type because struct {
	full    *ledger.FullError
	overlap *ledger.OverlapError
	behind  *behindError
	away    *awayError
}

// becauseOf sorts a reason. A walk gives it bare, ten thousand times; others wrap it.
func becauseOf(reason error) because {
	switch bare := reason.(type) { //nolint:errorlint // wrapped ones come next
	case *ledger.FullError:
		return because{full: bare}
	case *ledger.OverlapError:
		return because{overlap: bare}
	case *behindError:
		return because{behind: bare}
	case *awayError:
		return because{away: bare}
	}
	return wrapped(reason)
}

func wrapped(reason error) (b because) {
	_ = errors.As(reason, &b.overlap) || errors.As(reason, &b.behind) || errors.As(reason, &b.full) || errors.As(reason, &b.away)
	return b
}

// reasonOf is the news in the reason why a job waits, with the namespaces in conflict; false for
// any other error.
func reasonOf(reason error) (said, []string, bool) {
	switch b := becauseOf(reason); {
	case b.overlap != nil:
		return said{'o', string(b.overlap.With.UID)}, b.overlap.Namespaces, true
	case b.behind != nil:
		return said{'b', b.behind.name}, b.behind.namespaces, true
	case b.full != nil:
		return said{'f', ""}, nil, true
	case b.away != nil:
		return said{'a', b.away.message}, nil, true
	}
	return said{}, nil, false
}

// reasons are why jobs wait, each logged and recorded as an Event once. Only passes use it.
type reasons struct {
	told   map[types.UID]said // the last reason told for a job that waits
	voice  *rate.Limiter      // of what is told about jobs that wait
	clock  clock.PassiveClock
	events Events
	log    *slog.Logger
}

// waitOrFail tells why a job waits; any other error is one.
func (r *reasons) waitOrFail(obj client.Object, reason error) error {
	if _, _, waits := reasonOf(reason); !waits {
		return reason
	}
	r.explain(obj, reason)
	return nil
}

// explain logs why a job waits, and makes an Event of a conflict, once per reason.
func (r *reasons) explain(obj client.Object, reason error) {
	news, namespaces, _ := reasonOf(reason)
	if r.told[obj.GetUID()] == news || !r.voice.AllowN(r.clock.Now(), 1) {
		return
	}
	r.told[obj.GetUID()] = news
	if news.what == 'a' {
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

type silence struct{}

// Eventf implements Events.
func (silence) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

func kindOf(obj client.Object) string {
	if _, restore := obj.(*velerov1.Restore); restore {
		return ledger.KindRestore
	}
	return ledger.KindBackup
}

// tellStart says that a backup left the queue, and after how long.
func (r *reasons) tellStart(ctx context.Context, b *velerov1.Backup, waited time.Duration) {
	r.log.InfoContext(ctx, "backup admitted", "backup", b.Name, "waited", waited)
	r.events.Eventf(b, nil, corev1.EventTypeNormal, "Admitted", "Start", "ready to start after waiting %s", waited.Round(time.Second))
}

// forget drops notes about jobs that wait no more.
func (r *reasons) forget(v *view) {
	if len(r.told) == 0 {
		return
	}
	kept := make(map[types.UID]said, len(r.told))
	keep := func(uid types.UID) {
		if news, ok := r.told[uid]; ok {
			kept[uid] = news
		}
	}
	for _, b := range v.queued {
		keep(b.UID)
	}
	for _, waiting := range v.pending {
		keep(waiting.UID)
	}
	r.told = kept
}
