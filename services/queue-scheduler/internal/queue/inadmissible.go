package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// Inadmissible jobs wait for something else than their turn in the queue: they hold no place and
// reserve no namespace, so that they delay only themselves.
const (
	// refusalPause is how long a job that the API server refuses to write is not written again.
	refusalPause = 30 * time.Second
	// maxNote is the maximal length of an Event's note, in bytes.
	maxNote = 1000
)

// awayError means that the location of a backup is unavailable.
type awayError struct{ message string }

// Error implements error.
func (e *awayError) Error() string { return e.message }

func isLocationAway(err error) bool {
	_, away := errors.AsType[*awayError](err)
	return away
}

// errWriteRefused means that the API server refuses to write a job.
var errWriteRefused = errors.New("the API server refuses to write it")

// writeRefusals are the jobs that the API server refused to write. It may accept another version of a
// job. Safe for concurrent use.
type writeRefusals struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	byVersion map[string]writeRefusal
}

type writeRefusal struct {
	err error
	at  time.Time
}

// currentError is why this version of a job is not written now; nil if it may be.
func (r *writeRefusals) currentError(o client.Object) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.byVersion) == 0 { // a pass asks for each queued backup
		return nil
	}
	if refused, ok := r.byVersion[versionOf(o)]; ok && r.clock.Since(refused.at) < refusalPause {
		return refused.err
	}
	return nil
}

// noteError notes a refusal, and forgets those whose pause is over.
func (r *writeRefusals) noteError(o client.Object, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	maps.DeleteFunc(r.byVersion, func(_ string, known writeRefusal) bool { return now.Sub(known.at) >= refusalPause })
	r.byVersion[versionOf(o)] = writeRefusal{err, now}
}

func versionOf(o client.Object) string { return string(o.GetUID()) + "/" + o.GetResourceVersion() }

// noteRefused notes and reports a write that was refused for good; false for any other error.
func (s *Scheduler) noteRefused(o client.Object, err error) bool {
	if !kube.IsRefused(err) {
		return false
	}
	err = fmt.Errorf("%w: %w", errWriteRefused, err)
	s.refused.noteError(o, err)
	s.reasons.reportReason(o, err)
	return true
}

// inadmissibleReason is why a queued backup is inadmissible; nil if it is in the queue.
func (s *Scheduler) inadmissibleReason(ctx context.Context, v *passView, b *velerov1.Backup) error {
	if v.isAdmitted(b.UID) {
		return nil
	}
	if err := s.refused.currentError(b); err != nil {
		return err
	}
	if found := s.awayErrorOf(ctx, v, b); found != nil {
		return found
	}
	return nil
}

// awayErrorOf is why the location of a backup is unavailable; nil if it is not. Each location is read once in a pass.
func (s *Scheduler) awayErrorOf(ctx context.Context, v *passView, b *velerov1.Backup) *awayError {
	name := b.Spec.StorageLocation
	found, known := v.away[name]
	if !known {
		if message, err := s.Validator.Away(ctx, b); err == nil && message != "" { // an error is reported by validation
			found = &awayError{message}
		}
		v.away[name] = found
	}
	return found
}

// keepInadmissible handles an inadmissible backup, and reports whether it still waits. One whose location
// is unavailable is refused after a limit.
func (s *Scheduler) keepInadmissible(ctx context.Context, w *Waiting) (bool, error) {
	if !isLocationAway(w.Inadmissible) {
		return true, nil
	}
	b, limit := w.Backup, s.LocationTimeout
	s.reasons.reportReason(b, w.Inadmissible)
	if limit <= 0 || s.Clock.Since(s.observed.firstObserved(b.UID)) < limit {
		return true, nil
	}
	err := s.refuseBackup(ctx, b, fmt.Sprintf("spec.storageLocation: %v", w.Inadmissible), fmt.Sprintf("spec.storageLocation: unavailable for more than %s", limit))
	if s.noteRefused(b, err) {
		err = nil
	}
	return b.Status.Phase == velerov1.BackupPhaseQueued, err
}

// observations are since when this process has observed that an object is gone, or that the location of
// a backup is unavailable: the clocks of others may differ. What a whole pass does not observe is
// forgotten. Only passes use it.
type observations struct {
	clock             clock.PassiveClock
	previous, current map[types.UID]time.Time
}

func (o *observations) firstObserved(uid types.UID) time.Time {
	since, known := o.previous[uid]
	if !known {
		since, known = o.current[uid]
	}
	if !known {
		since = o.clock.Now()
	}
	o.current[uid] = since
	return since
}

func (o *observations) endPass() {
	o.previous, o.current = o.current, map[types.UID]time.Time{}
}
