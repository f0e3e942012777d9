package engine

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// failurePause is how long a job that failed here is not begun again without a message: its claim
// was released, which is seen at once.
const failurePause = 10 * time.Second

// works knows the jobs this process works on, and those that failed here just now.
type works struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	now    map[types.UID]struct{}
	failed map[types.UID]time.Time
}

func newWorks(c clock.PassiveClock) *works {
	return &works{clock: c, now: map[types.UID]struct{}{}, failed: map[types.UID]time.Time{}}
}

// enter keeps a second attempt from taking the claim from this process's own work; false while
// there is one.
func (w *works) enter(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.now[uid]; ok {
		return false
	}
	w.now[uid] = struct{}{}
	return true
}

// leave ends the work and notes whether it failed, in one step: whoever sees that it ended sees
// that it failed.
func (w *works) leave(uid types.UID, failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.now, uid)
	if failed {
		w.failed[uid] = w.clock.Now()
	}
}

func (w *works) active(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.now[uid]
	return ok
}

func (w *works) failedLately(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	maps.DeleteFunc(w.failed, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= failurePause })
	_, ok := w.failed[uid]
	return ok
}
