package queue

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/ledger"
)

// What is told about jobs that wait is bounded: one job that ends may change the
// reasons of ten thousand. What is held back is told by a later pass, if it still
// holds then.
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

// reasonOf is the news in the reason why a job waits, with the namespaces in
// conflict; false for any other error.
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

// waitOrFail tells why a job waits; any other error is one.
func (s *Scheduler) waitOrFail(obj client.Object, reason error) error {
	if _, _, waits := reasonOf(reason); !waits {
		return reason
	}
	s.explain(obj, reason)
	return nil
}

// explain logs why a job waits, and makes an Event of a conflict, once per reason.
func (s *Scheduler) explain(obj client.Object, reason error) {
	news, namespaces, _ := reasonOf(reason)
	if s.told[obj.GetUID()] == news || !s.voice.AllowN(s.Clock.Now(), 1) {
		return
	}
	s.told[obj.GetUID()] = news
	if news.what == 'a' {
		s.Log.Warn("backup waits for its location", "name", obj.GetName(), "reason", reason)
		s.Events.Eventf(obj, nil, corev1.EventTypeWarning, "LocationUnavailable", "Queue", "%s", clipped(reason.Error()))
		return
	}
	if len(namespaces) == 0 {
		s.Log.Info("job waits", "kind", kindOf(obj), "name", obj.GetName(), "reason", reason)
		return
	}
	s.Log.Info("job passed over", "kind", kindOf(obj), "name", obj.GetName(), "reason", reason, "namespaces", namespaces)
	s.Events.Eventf(obj, nil, corev1.EventTypeNormal, "PassedOver", "Queue", "%v", reason)
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
func (s *Scheduler) tellStart(ctx context.Context, b *velerov1.Backup, waited time.Duration) {
	s.Log.InfoContext(ctx, "backup admitted", "backup", b.Name, "waited", waited)
	s.Events.Eventf(b, nil, corev1.EventTypeNormal, "Admitted", "Start", "ready to start after waiting %s", waited.Round(time.Second))
}

// forget drops notes about jobs that wait no more.
func (s *Scheduler) forget(v *view) {
	s.mu.Lock()
	s.parked.forget(v)
	s.mu.Unlock()
	if len(s.told) == 0 {
		return
	}
	kept := make(map[types.UID]said, len(s.told))
	keep := func(uid types.UID) {
		if news, ok := s.told[uid]; ok {
			kept[uid] = news
		}
	}
	for _, b := range v.queued {
		keep(b.UID)
	}
	for _, r := range v.pending {
		keep(r.UID)
	}
	s.told = kept
}
