package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// A job that the API server refuses to write is written again after a pause, which doubles each time
// up to a limit.
const (
	refusedPause    = 5 * time.Second
	maxRefusedPause = time.Minute
)

// inadmissibleBackups are the jobs that wait for something else than their turn in the queue: they hold no
// place and reserve no namespace, so that they delay only themselves.
type inadmissibleBackups struct {
	validator Validator
	clock     clock.PassiveClock
	reasons   *waitReasons
	refused   *flowcontrol.Backoff    // of versions of jobs
	away      map[types.UID]time.Time // since when the location of a queued backup is unavailable

	mu       sync.Mutex                   // of backoffs, which readers of the queue read too
	backoffs map[types.UID]suspendedSince // suspended backups
}

func newInadmissible(cfg *Config, r *waitReasons) *inadmissibleBackups {
	refused := flowcontrol.NewBackOff(refusedPause, maxRefusedPause)
	refused.Clock = cfg.Clock
	return &inadmissibleBackups{
		validator: cfg.Validator, clock: cfg.Clock, reasons: r, refused: refused,
		away: map[types.UID]time.Time{}, backoffs: map[types.UID]suspendedSince{},
	}
}

// suspendBackoff is how long a suspended backup is inadmissible at least: others come first also
// where its location seems to be available.
const suspendBackoff = 30 * time.Second

// suspendedSince is since when a backup is seen suspended under an admission.
type suspendedSince struct{ admission, since time.Time }

// awayError means that the location of a backup is unavailable.
type awayError struct{ message string }

// Error implements error.
func (e *awayError) Error() string { return e.message }

// errWriteRefused means that the API server refuses to write a job.
var errWriteRefused = errors.New("the API server refuses to write it")

// refusalReason is why a queued backup is inadmissible; nil if it is in the queue.
func (i *inadmissibleBackups) refusalReason(ctx context.Context, v *passView, b *velerov1.Backup) error {
	if v.isAdmitted(b.UID) {
		return nil
	}
	if i.isRefused(b) {
		return errWriteRefused
	}
	if m, _ := mark.SuspensionOf(b); isSuspended(b) && i.backsOff(b, m) {
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

func (i *inadmissibleBackups) backsOff(b *velerov1.Backup, m mark.Suspension) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	r, known := i.backoffs[b.UID]
	if !known || !r.admission.Equal(m.Admission) {
		r = suspendedSince{m.Admission, i.clock.Now()}
		i.backoffs[b.UID] = r
	}
	return i.clock.Since(r.since) < suspendBackoff
}

// isRefused reports that the API server refused to write this version of a job, and that the pause
// before the next try is not over.
func (i *inadmissibleBackups) isRefused(o client.Object) bool {
	return i.refused.IsInBackOffSinceUpdate(versionOf(o), i.clock.Now())
}

// versionOf names a version of a job: the API server may accept another one.
func versionOf(o client.Object) string { return string(o.GetUID()) + "/" + o.GetResourceVersion() }

// noteRefused notes and reports a write that was refused for good; false for any other error.
func (i *inadmissibleBackups) noteRefused(o client.Object, err error) bool {
	if !kube.IsRefused(err) {
		return false
	}
	i.refused.Next(versionOf(o), i.clock.Now())
	i.reasons.reportReason(o, fmt.Errorf("%w: %w", errWriteRefused, err))
	return true
}

// maxNote is the maximal length of an Event's note, in bytes.
const maxNote = 1000

func clipText(text string) string {
	if len(text) > maxNote {
		return text[:maxNote] + "…"
	}
	return text
}

// keepInadmissible handles an inadmissible backup, and reports whether it still waits.
func (s *Scheduler) keepInadmissible(ctx context.Context, v *passView, b *Waiting) (bool, error) {
	if causeOf(b.Inadmissible).away == nil {
		return true, nil
	}
	v.unavailable[b.Backup.UID] = true
	if isSuspended(b.Backup) { // it was begun: it waits until it is cancelled
		s.reasons.reportReason(b.Backup, b.Inadmissible)
		return true, nil
	}
	return s.awaitLocation(ctx, b.Backup, b.Inadmissible)
}

// awaitLocation lets a backup wait for its location, and refuses it after a limit. It reports
// whether the backup still waits.
func (s *Scheduler) awaitLocation(ctx context.Context, b *velerov1.Backup, reason error) (bool, error) {
	s.reasons.reportReason(b, reason)
	since, limit := s.inadmissible.noticedSince(b.UID, s.Clock.Now()), s.LocationTimeout
	if limit <= 0 || s.Clock.Since(since) < limit {
		return true, nil
	}
	err := s.writer.updateBackup(ctx, b, velerov1.BackupPhaseQueued, func(b *velerov1.Backup) error {
		problems, err := s.Validator.Backup(ctx, b)
		if err != nil {
			return err
		}
		failValidation(b, append(problems.Strings(), fmt.Sprintf("spec.storageLocation: unavailable for more than %s", limit)))
		return nil
	})
	if s.inadmissible.noteRefused(b, err) {
		err = nil
	}
	return b.Status.Phase == velerov1.BackupPhaseQueued, err
}

func (i *inadmissibleBackups) noticedSince(uid types.UID, now time.Time) time.Time {
	since, known := i.away[uid]
	if !known {
		since = now
		i.away[uid] = now
	}
	return since
}

// forgetAdmissible drops what is noted about jobs that are admissible again.
func (i *inadmissibleBackups) forgetAdmissible(v *passView) {
	i.refused.GC()
	i.mu.Lock()
	defer i.mu.Unlock()
	away, backoffs := make(map[types.UID]time.Time, len(i.away)), make(map[types.UID]suspendedSince, len(i.backoffs))
	for _, b := range v.queued {
		if since, ok := i.away[b.UID]; ok && v.unavailable[b.UID] {
			away[b.UID] = since
		}
		if r, ok := i.backoffs[b.UID]; ok {
			backoffs[b.UID] = r
		}
	}
	i.away, i.backoffs = away, backoffs
}
