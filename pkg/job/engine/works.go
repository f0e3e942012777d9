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
	// failurePause is how long a job that failed here is not begun again without a message: its
	// claim was released, which is seen at once. After a panic it doubles with each further one,
	// and holds for messages too.
	failurePause = 10 * time.Second
	longestPause = time.Hour
	// panicLimit is the number of panics in a row from which on a job is the matter of
	// PanicHandler.
	panicLimit = 5
)

// failure is what is remembered of a job that failed here.
type failure struct {
	at     time.Time
	panics int    // since the last attempt that succeeded
	value  string // of the last panic
}

// pause is for how long the job rests.
func (f *failure) pause() time.Duration {
	return min(failurePause<<min(max(f.panics-1, 0), 10), longestPause)
}

// kept is for how long the failure is remembered: panics past the end of the pause, as the next
// attempt is begun only then.
func (f *failure) kept() time.Duration {
	if f.panics == 0 {
		return f.pause()
	}
	return f.pause() + longestPause
}

// works knows the jobs this process works on, and those that failed here just now.
type works struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	now    map[types.UID]struct{}
	failed map[types.UID]*failure
}

func newWorks(c clock.PassiveClock) *works {
	return &works{clock: c, now: map[types.UID]struct{}{}, failed: map[types.UID]*failure{}}
}

// enterIf begins the work on a job if ready returns true, in one step, and returns whether the
// process works on it already: a second attempt would take the claim from the first. ready is not
// called then.
func (w *works) enterIf(uid types.UID, ready func() bool) (active bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, active = w.now[uid]; !active && ready() {
		w.now[uid] = struct{}{}
	}
	return active
}

// leave ends the work and notes whether it failed, in one step: whoever sees that it ended sees
// that it failed.
func (w *works) leave(uid types.UID, err error) {
	var held *claim.HeldError
	var p *panicError
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.now, uid)
	if err == nil || errors.As(err, &held) {
		delete(w.failed, uid)
		return
	}
	last := w.recall(uid)
	next := &failure{at: w.clock.Now(), panics: last.panics, value: last.value}
	if errors.As(err, &p) {
		next.panics, next.value = last.panics+1, p.text()
	}
	w.failed[uid] = next
}

func (w *works) active(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.now[uid]
	return ok
}

// failedLately reports that the job rests because it failed here.
func (w *works) failedLately(uid types.UID) bool { return w.rest(uid) > 0 }

// restAfterPanic is for how long the job still rests because it panicked here, 0 if it does not.
func (w *works) restAfterPanic(uid types.UID) time.Duration {
	if n, _ := w.panics(uid); n == 0 {
		return 0
	}
	return w.rest(uid)
}

// rest is for how long the job still rests because it failed here, 0 if it does not.
func (w *works) rest(uid types.UID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.recall(uid)
	if last.at.IsZero() {
		return 0
	}
	return max(last.pause()-w.clock.Since(last.at), 0)
}

// panics returns how often in a row the job panicked here, and the value of the last panic.
func (w *works) panics(uid types.UID) (n int, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.recall(uid)
	return last.panics, last.value
}

// recall returns how the job failed here, the zero value if it did not. w.mu must be held.
func (w *works) recall(uid types.UID) failure {
	now := w.clock.Now()
	maps.DeleteFunc(w.failed, func(_ types.UID, f *failure) bool { return now.Sub(f.at) >= f.kept() })
	if last, ok := w.failed[uid]; ok {
		return *last
	}
	return failure{}
}
