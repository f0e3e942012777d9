package engine

import (
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// failureBackoff is how long a job that failed here is not begun again without a hint: its claim
// was released, which is observed at once.
const failureBackoff = 10 * time.Second

// activity is the work of this process on a job, from the place that it got to its return.
type activity struct {
	leave func() // gives the place back, once
	// abandoned is closed when the process stops waiting for the work.
	abandoned chan struct{}
	// placeless is closed when the job leaves its place before its end.
	placeless chan struct{}
	// epoch is that of the claim, 0 before there is one. The tracker guards it and lose.
	epoch int64
	lose  func(cause error)
}

// newActivity returns the work that has taken a place.
func (e *Engine[T]) newActivity() *activity {
	return &activity{leave: sync.OnceFunc(func() { e.places.Release(1) }), abandoned: make(chan struct{}), placeless: make(chan struct{})}
}

// jobTracker holds the jobs that this process works on, and those in backoff because they failed here.
// Safe for concurrent use.
type jobTracker struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	running map[types.UID]*activity
	failed  map[types.UID]time.Time
}

func newTracker(c clock.PassiveClock) *jobTracker {
	return &jobTracker{clock: c, running: map[types.UID]*activity{}, failed: map[types.UID]time.Time{}}
}

// startActivity begins the work on a job if ready returns an activity, in one step, and returns whether
// the process works on it already: a second attempt would acquire the claim of the first. ready is
// not called then.
func (w *jobTracker) startActivity(uid types.UID, ready func() *activity) (started *activity, active bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, active = w.running[uid]; active {
		return nil, true
	}
	if started = ready(); started != nil {
		w.running[uid] = started
	}
	return started, false
}

// noteClaim notes the claim under which a job runs, and what ends its context.
func (w *jobTracker) noteClaim(a *activity, epoch int64, lose func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a.epoch, a.lose = epoch, lose
}

// abandon ends the work on a job whose claim has a later epoch, and returns it; nil when there is
// none.
func (w *jobTracker) abandon(uid types.UID, epoch int64) *activity {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.running[uid]
	if a == nil || a.epoch == 0 || epoch <= a.epoch {
		return nil
	}
	delete(w.running, uid)
	return a
}

// countActive returns how many jobs this process works on.
func (w *jobTracker) countActive() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running)
}

// finishJob ends the work and notes whether it failed, in one step: a reader that finds it ended finds
// its failure too. Work that was abandoned leaves no trace.
func (w *jobTracker) finishJob(uid types.UID, a *activity, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[uid] != a {
		return
	}
	delete(w.running, uid)
	var held *claim.HeldError
	if err == nil || errors.As(err, &held) {
		delete(w.failed, uid)
		return
	}
	w.failed[uid] = w.clock.Now()
}

func (w *jobTracker) isActive(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.running[uid]
	return ok
}

// inBackoff reports that the job is not to be begun again yet because it failed here.
func (w *jobTracker) inBackoff(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.failed, func(_ types.UID, at time.Time) bool { return w.clock.Since(at) >= failureBackoff })
	_, failed := w.failed[uid]
	return failed
}
