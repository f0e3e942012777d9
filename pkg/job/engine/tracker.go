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

const (
	// failureBackoff is how long a job that failed here is not begun again without a hint: its
	// claim was released, which is observed at once. After a panic it doubles with each further
	// one, and holds for hints too.
	failureBackoff = 10 * time.Second
	maxBackoff     = time.Hour
	// panicLimit is the number of panics in a row from which on PanicHandler ends the job.
	panicLimit = 5
)

// failure is what is kept about a job that failed here.
type failure struct {
	at     time.Time
	panics int    // since the last attempt that succeeded
	value  string // of the last panic
}

// backoff is for how long the job is not begun again.
func (f *failure) backoff() time.Duration {
	return min(failureBackoff<<min(max(f.panics-1, 0), 10), maxBackoff)
}

// retention is for how long the failure is kept: panics past the end of the backoff, as the next
// attempt is begun only then.
func (f *failure) retention() time.Duration {
	if f.panics == 0 {
		return f.backoff()
	}
	return f.backoff() + maxBackoff
}

// tracker holds the jobs that this process works on, and those in backoff because they failed here.
// Safe for concurrent use.
type tracker struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	running map[types.UID]struct{}
	failed  map[types.UID]*failure
}

func newTracker(c clock.PassiveClock) *tracker {
	return &tracker{clock: c, running: map[types.UID]struct{}{}, failed: map[types.UID]*failure{}}
}

// startIf begins the work on a job if ready returns true, in one step, and returns whether the
// process works on it already: a second attempt would acquire the claim of the first. ready is not
// called then.
func (w *tracker) startIf(uid types.UID, ready func() bool) (active bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, active = w.running[uid]; !active && ready() {
		w.running[uid] = struct{}{}
	}
	return active
}

// count returns how many jobs this process works on.
func (w *tracker) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running)
}

// finish ends the work and notes whether it failed, in one step: a reader that finds it ended finds
// its failure too.
func (w *tracker) finish(uid types.UID, err error) {
	var held *claim.HeldError
	var p *panicError
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, uid)
	if err == nil || errors.As(err, &held) {
		delete(w.failed, uid)
		return
	}
	last := w.lastFailure(uid)
	next := &failure{at: w.clock.Now(), panics: last.panics, value: last.value}
	if errors.As(err, &p) {
		next.panics, next.value = last.panics+1, p.text()
	}
	w.failed[uid] = next
}

func (w *tracker) active(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.running[uid]
	return ok
}

// inBackoff reports that the job is not to be begun again yet because it failed here.
func (w *tracker) inBackoff(uid types.UID) bool { return w.backoff(uid) > 0 }

// panicBackoff is what is left of the backoff of a job that panicked here, else 0.
func (w *tracker) panicBackoff(uid types.UID) time.Duration {
	if n, _ := w.panics(uid); n == 0 {
		return 0
	}
	return w.backoff(uid)
}

// backoff is what is left of the backoff of a job that failed here, else 0.
func (w *tracker) backoff(uid types.UID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.lastFailure(uid)
	if last.at.IsZero() {
		return 0
	}
	return max(last.backoff()-w.clock.Since(last.at), 0)
}

// panics returns how often in a row the job panicked here, and the value of the last panic.
func (w *tracker) panics(uid types.UID) (n int, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.lastFailure(uid)
	return last.panics, last.value
}

// lastFailure returns how the job failed here, the zero value if it did not. w.mu must be held.
func (w *tracker) lastFailure(uid types.UID) failure {
	now := w.clock.Now()
	maps.DeleteFunc(w.failed, func(_ types.UID, f *failure) bool { return now.Sub(f.at) >= f.retention() })
	if last, ok := w.failed[uid]; ok {
		return *last
	}
	return failure{}
}
