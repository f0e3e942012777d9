package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
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

// reasonKind is a reason without its particulars: a change of kind is one log line and Event. What
// explains a single backup is Reason, which has one value more: behindAnother is RestoreAhead or
// OverlapAhead there.
type reasonKind int

const (
	noReason reasonKind = iota
	placeTaken
	namespaceInUse
	behindAnother
	locationAway
	writeRefused
)

// kindOfReason is the kind of the reason why a job waits; noReason for any other error.
func kindOfReason(reason error) reasonKind {
	if _, overlap := errors.AsType[*ledger.OverlapError](reason); overlap {
		return namespaceInUse
	}
	if _, behind := errors.AsType[*behindError](reason); behind {
		return behindAnother
	}
	if _, older := errors.AsType[*olderError](reason); older {
		return behindAnother
	}
	if _, full := errors.AsType[*ledger.FullError](reason); full {
		return placeTaken
	}
	switch {
	case isLocationAway(reason):
		return locationAway
	case errors.Is(reason, errWriteRefused):
		return writeRefused
	}
	return noReason
}

// waitReasons are why jobs wait. Each job is logged and gets an Event when it begins to wait and when the
// kind of its reason changes. Safe for concurrent use.
type waitReasons struct {
	limiter *rate.Limiter // of what is reported about jobs that wait
	clock   clock.PassiveClock
	events  Events
	log     *slog.Logger

	mu       sync.Mutex
	reported map[types.UID]reasonKind // the last kind reported for a job that waits
}

// reportOrFail reports why a job waits; any other error is returned.
func (r *waitReasons) reportOrFail(obj client.Object, reason error) error {
	if kindOfReason(reason) == noReason {
		return reason
	}
	r.reportReason(obj, reason)
	return nil
}

// reportReason logs why a job waits and records it as an Event, unless the last report was of that kind.
func (r *waitReasons) reportReason(obj client.Object, reason error) {
	kind := kindOfReason(reason)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported[obj.GetUID()] == kind || !r.limiter.AllowN(r.clock.Now(), 1) {
		return
	}
	r.reported[obj.GetUID()] = kind
	r.log.Info("Job waits", "kind", kindOf(obj), "name", obj.GetName(), "reason", reason)
	eventType, event := corev1.EventTypeNormal, "Waiting"
	switch kind {
	case locationAway:
		eventType, event = corev1.EventTypeWarning, "LocationUnavailable"
	case writeRefused:
		eventType, event = corev1.EventTypeWarning, "WriteRefused"
	}
	note := reason.Error()
	if len(note) > maxNote {
		note = note[:maxNote] + "…"
	}
	r.events.Eventf(obj, nil, eventType, event, "Queue", "%s", note)
}

func kindOf(obj client.Object) string {
	if _, restore := obj.(*velerov1.Restore); restore {
		return ledger.KindRestore
	}
	return ledger.KindBackup
}

// reportAdmission reports that a backup left the queue, and after how long.
func (r *waitReasons) reportAdmission(ctx context.Context, b *velerov1.Backup, waited time.Duration) {
	r.forgetJob(b.UID)
	r.log.InfoContext(ctx, "Backup admitted", "backup", b.Name, "waited", waited)
	r.events.Eventf(b, nil, corev1.EventTypeNormal, "Admitted", "Start", "ready to start after waiting %s", waited.Round(time.Second))
}

// forgetJob drops the note about a job that waits no more: it may wait again.
func (r *waitReasons) forgetJob(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reported, uid)
}

// forgetReasons drops notes about jobs that have ended.
func (r *waitReasons) forgetReasons(v *passView) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := make(map[types.UID]reasonKind, len(r.reported))
	for _, j := range v.unfinished {
		if kind, ok := r.reported[j.GetUID()]; ok {
			kept[j.GetUID()] = kind
		}
	}
	r.reported = kept
}
