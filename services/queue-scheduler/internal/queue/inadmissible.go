package queue

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/suspend"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// refusedBackoff is how long a job is not written that the API server refused to write.
const refusedBackoff = time.Minute

// inadmissible are the jobs that wait for something else than their turn in the queue: they hold no
// place and reserve no namespace, so that they delay only themselves.
type inadmissible struct {
	validator Validator
	clock     clock.PassiveClock
	events    Events
	log       *slog.Logger

	mu       sync.Mutex              // of refused and backoffs, which readers of the queue read too
	away     map[types.UID]time.Time // since when the location of a queued backup is unavailable
	refused  map[types.UID]refusal
	backoffs map[types.UID]backoff // suspended backups
}

func newInadmissible(cfg *Config) *inadmissible {
	return &inadmissible{
		validator: cfg.Validator, clock: cfg.Clock, events: cfg.Events, log: cfg.Log,
		away: map[types.UID]time.Time{}, refused: map[types.UID]refusal{}, backoffs: map[types.UID]backoff{},
	}
}

// suspendBackoff is how long a suspended backup is inadmissible at least: others come first also
// where its location seems to be available.
const suspendBackoff = 30 * time.Second

// backoff is since when a backup is seen suspended under an admission.
type backoff struct{ admission, since time.Time }

// refusal is a write that the API server refused for good.
type refusal struct {
	version string // of the object: another one may be acceptable
	until   time.Time
	err     error
}

// awayError means that the location of a backup is unavailable.
type awayError struct{ message string }

// Error implements error.
func (e *awayError) Error() string { return e.message }

// refusedError means that the API server refuses to write a job.
type refusedError struct{ err error }

// Error implements error.
func (e *refusedError) Error() string { return "the API server refuses to write it: " + e.err.Error() }

// Unwrap makes the refusal visible.
func (e *refusedError) Unwrap() error { return e.err }

// reason is why a queued backup is inadmissible; nil if it is in the queue.
func (i *inadmissible) reason(ctx context.Context, v *view, b *velerov1.Backup) error {
	if v.admitted(b.UID) {
		return nil
	}
	if err := i.refusedBefore(b); err != nil {
		return err
	}
	if m, _ := suspend.Of(b); suspended(b) && i.backsOff(b, m) {
		return &awayError{"its bucket did not answer: " + m.Reason}
	}
	name := b.Spec.StorageLocation
	found, known := v.away[name]
	if !known {
		if message, err := i.validator.Away(ctx, b); err == nil && message != "" { // an error is reported by validation
			found = &awayError{message}
		}
		v.away[name] = found
	}
	if found == nil {
		return nil
	}
	return found
}

func (i *inadmissible) backsOff(b *velerov1.Backup, m suspend.Mark) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	r, known := i.backoffs[b.UID]
	if !known || !r.admission.Equal(m.Admission) {
		r = backoff{m.Admission, i.clock.Now()}
		i.backoffs[b.UID] = r
	}
	return i.clock.Since(r.since) < suspendBackoff
}

// refusedBefore is why a job is not written now: the API server refused it a moment ago.
func (i *inadmissible) refusedBefore(o client.Object) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	r, known := i.refused[o.GetUID()]
	if !known || r.version != o.GetResourceVersion() || !i.clock.Now().Before(r.until) {
		return nil
	}
	return &refusedError{r.err}
}

// noteRefused notes, logs and records as an Event a write that was refused for good; false for any
// other error.
func (i *inadmissible) noteRefused(o client.Object, version string, err error) bool {
	if !kube.IsRefused(err) {
		return false
	}
	i.mu.Lock()
	_, again := i.refused[o.GetUID()]
	i.refused[o.GetUID()] = refusal{version: version, until: i.clock.Now().Add(refusedBackoff), err: err}
	i.mu.Unlock()
	if !again {
		i.log.Warn("job cannot be written", "kind", kindOf(o), "name", o.GetName(), "error", err)
		i.events.Eventf(o, nil, corev1.EventTypeWarning, "WriteRefused", "Queue", "%s", clipped((&refusedError{err}).Error()))
	}
	return true
}

// maxNote is the maximal length of an Event's note, in bytes.
const maxNote = 1000

func clipped(text string) string {
	if len(text) > maxNote {
		return text[:maxNote] + "…"
	}
	return text
}

// keepInadmissible handles an inadmissible backup, and reports whether it still waits.
func (s *Scheduler) keepInadmissible(ctx context.Context, v *view, b *Waiting) (bool, error) {
	if causeOf(b.Inadmissible).away == nil {
		return true, nil
	}
	v.unavailable[b.Backup.UID] = true
	if suspended(b.Backup) { // it was begun: it waits until it is cancelled
		s.reasons.report(b.Backup, b.Inadmissible)
		return true, nil
	}
	return s.awaitLocation(ctx, b.Backup, b.Inadmissible)
}

// awaitLocation lets a backup wait for its location, and refuses it after a limit. It reports
// whether the backup still waits.
func (s *Scheduler) awaitLocation(ctx context.Context, b *velerov1.Backup, reason error) (bool, error) {
	s.reasons.report(b, reason)
	since, limit := s.inadmissible.since(b.UID, s.Clock.Now()), s.LocationTimeout
	if limit <= 0 || s.Clock.Since(since) < limit {
		return true, nil
	}
	version := b.ResourceVersion
	err := s.writer.update(ctx, b, velerov1.BackupPhaseQueued, func(b *velerov1.Backup) error {
		problems, err := s.Validator.Backup(ctx, b)
		if err != nil {
			return err
		}
		refuse(b, append(problems.Strings(), fmt.Sprintf("spec.storageLocation: unavailable for more than %s", limit)))
		return nil
	})
	if s.inadmissible.noteRefused(b, version, err) {
		err = nil
	}
	return b.Status.Phase == velerov1.BackupPhaseQueued, err
}

func (i *inadmissible) since(uid types.UID, now time.Time) time.Time {
	since, known := i.away[uid]
	if !known {
		since = now
		i.away[uid] = now
	}
	return since
}

// forget drops what is noted about jobs that are admissible again.
func (i *inadmissible) forget(v *view) {
	i.mu.Lock()
	defer i.mu.Unlock()
	away, refused := make(map[types.UID]time.Time, len(i.away)), make(map[types.UID]refusal, len(i.refused))
	backoffs := make(map[types.UID]backoff, len(i.backoffs))
	keep := func(uid types.UID) {
		if r, ok := i.refused[uid]; ok {
			refused[uid] = r
		}
	}
	for _, j := range v.unfinished {
		keep(j.object().GetUID())
	}
	for _, b := range v.queued {
		if since, ok := i.away[b.UID]; ok && v.unavailable[b.UID] {
			away[b.UID] = since
		}
		if r, ok := i.backoffs[b.UID]; ok {
			backoffs[b.UID] = r
		}
	}
	i.away, i.refused, i.backoffs = away, refused, backoffs
}
