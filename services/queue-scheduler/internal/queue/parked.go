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

// refusedPause is how long a job rests that the API server refused to write.
const refusedPause = time.Minute

// parked are the jobs that wait for something beside the queue: they hold no place and claim no
// namespace, so that they delay only themselves.
type parked struct {
	validator Validator
	clock     clock.PassiveClock
	events    Events
	log       *slog.Logger

	mu      sync.Mutex              // of refused and resting, which readers of the queue look at too
	away    map[types.UID]time.Time // since when the location of a queued backup is unavailable
	refused map[types.UID]refusal
	resting map[types.UID]rest // suspended backups
}

func newParked(cfg *Config) *parked {
	return &parked{
		validator: cfg.Validator, clock: cfg.Clock, events: cfg.Events, log: cfg.Log,
		away: map[types.UID]time.Time{}, refused: map[types.UID]refusal{}, resting: map[types.UID]rest{},
	}
}

// restPause is how long a suspended backup stands aside at least: others come first also where its
// location seems to be available.
const restPause = 30 * time.Second

// rest is since when a backup is seen suspended under an admission.
type rest struct{ admission, since time.Time }

// refusal is a write that the API server refused for good.
type refusal struct {
	version string // of the object: another one may be acceptable
	until   time.Time
	err     error
}

// awayError says that the location of a backup is unavailable.
type awayError struct{ message string }

// Error implements error.
func (e *awayError) Error() string { return e.message }

// refusedError says that the API server refuses to write a job.
type refusedError struct{ err error }

// Error implements error.
func (e *refusedError) Error() string { return "the API server refuses to write it: " + e.err.Error() }

// Unwrap makes the refusal visible.
func (e *refusedError) Unwrap() error { return e.err }

// aside is why a queued backup stands beside the queue; nil if it is in it.
func (p *parked) aside(ctx context.Context, v *view, b *velerov1.Backup) error {
	if v.admitted(b.UID) {
		return nil
	}
	if err := p.barred(b); err != nil {
		return err
	}
	if m, _ := suspend.Of(b); suspended(b) && p.rests(b, m) {
		return &awayError{"its bucket did not answer: " + m.Reason}
	}
	name := b.Spec.StorageLocation
	found, known := v.away[name]
	if !known {
		if message, err := p.validator.Away(ctx, b); err == nil && message != "" { // an error is told by validation
			found = &awayError{message}
		}
		v.away[name] = found
	}
	if found == nil {
		return nil
	}
	return found
}

func (p *parked) rests(b *velerov1.Backup, m suspend.Mark) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.resting[b.UID]
	if !known || !r.admission.Equal(m.Admission) {
		r = rest{m.Admission, p.clock.Now()}
		p.resting[b.UID] = r
	}
	return p.clock.Since(r.since) < restPause
}

// barred is why a job is not written now: the API server refused it a moment ago.
func (p *parked) barred(o client.Object) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.refused[o.GetUID()]
	if !known || r.version != o.GetResourceVersion() || !p.clock.Now().Before(r.until) {
		return nil
	}
	return &refusedError{r.err}
}

// bar notes a write that was refused for good, and tells people; false for any other error.
func (p *parked) bar(o client.Object, version string, err error) bool {
	if !kube.IsRefused(err) {
		return false
	}
	p.mu.Lock()
	_, again := p.refused[o.GetUID()]
	p.refused[o.GetUID()] = refusal{version: version, until: p.clock.Now().Add(refusedPause), err: err}
	p.mu.Unlock()
	if !again {
		p.log.Warn("job cannot be written", "kind", kindOf(o), "name", o.GetName(), "error", err)
		p.events.Eventf(o, nil, corev1.EventTypeWarning, "WriteRefused", "Queue", "%s", clipped((&refusedError{err}).Error()))
	}
	return true
}

// maxNote is how much an Event may say.
const maxNote = 1000

func clipped(text string) string {
	if len(text) > maxNote {
		return text[:maxNote] + "…"
	}
	return text
}

// stand looks after a backup beside the queue, and reports whether it still waits.
func (s *Scheduler) stand(ctx context.Context, v *view, b *Waiting) (bool, error) {
	if becauseOf(b.Aside).away == nil {
		return true, nil
	}
	v.asides[b.Backup.UID] = true
	if suspended(b.Backup) { // it was begun: it waits until it is cancelled
		s.reasons.explain(b.Backup, b.Aside)
		return true, nil
	}
	return s.await(ctx, b.Backup, b.Aside)
}

// await lets a backup wait for its location, and refuses it after a limit. It reports whether the
// backup still waits.
func (s *Scheduler) await(ctx context.Context, b *velerov1.Backup, reason error) (bool, error) {
	s.reasons.explain(b, reason)
	since, limit := s.parked.since(b.UID, s.Clock.Now()), s.LocationTimeout
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
	if s.parked.bar(b, version, err) {
		err = nil
	}
	return b.Status.Phase == velerov1.BackupPhaseQueued, err
}

func (p *parked) since(uid types.UID, now time.Time) time.Time {
	since, known := p.away[uid]
	if !known {
		since = now
		p.away[uid] = now
	}
	return since
}

// forget drops what is noted about jobs that are not parked any more.
func (p *parked) forget(v *view) {
	p.mu.Lock()
	defer p.mu.Unlock()
	away, refused := make(map[types.UID]time.Time, len(p.away)), make(map[types.UID]refusal, len(p.refused))
	resting := make(map[types.UID]rest, len(p.resting))
	keep := func(uid types.UID) {
		if r, ok := p.refused[uid]; ok {
			refused[uid] = r
		}
	}
	for _, j := range v.unfinished {
		keep(j.object().GetUID())
	}
	for _, b := range v.queued {
		if since, ok := p.away[b.UID]; ok && v.asides[b.UID] {
			away[b.UID] = since
		}
		if r, ok := p.resting[b.UID]; ok {
			resting[b.UID] = r
		}
	}
	p.away, p.refused, p.resting = away, refused, resting
}
