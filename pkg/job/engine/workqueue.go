package engine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// queueSize is how many jobs without a hint may wait in the workqueue; others are found again by
// the next reconcile.
const queueSize = 64

// item names a job.
type item struct {
	name string
	uid  types.UID
}

// queuedJob is a job of the queue.
type queuedJob struct {
	item
	reported bool // that it waits
}

// workqueue holds the jobs that were found by reconciling their objects, without a hint.
type workqueue struct {
	clock clock.PassiveClock
	items chan item

	mu      sync.Mutex
	queued  map[types.UID]*queuedJob
	full    bool                               // the first of the queue waits for a place
	waiting map[types.NamespacedName]time.Time // since when each object is seen waiting
}

func newWorkqueue(c clock.PassiveClock) *workqueue {
	return &workqueue{clock: c, items: make(chan item, queueSize), queued: map[types.UID]*queuedJob{}, waiting: map[types.NamespacedName]time.Time{}}
}

// noteWaiting notes whether an object waits for a process to work on it, and returns for how long
// it has.
func (f *workqueue) noteWaiting(key types.NamespacedName, waits bool) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !waits {
		delete(f.waiting, key)
		return 0
	}
	first, known := f.waiting[key]
	if !known {
		first = f.clock.Now()
		f.waiting[key] = first
	}
	return f.clock.Since(first)
}

// addJob queues a job, unless it is queued already, and returns whether it is to be reported that it
// waits for a place. A job for which the queue is full is found again.
func (f *workqueue) addJob(i item) (waits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queued[i.uid] != nil {
		return false
	}
	select {
	case f.items <- i:
		f.queued[i.uid] = &queuedJob{item: i, reported: f.full}
		return f.full
	default:
		return false
	}
}

// markFull notes that the first of the queue waits for a place, and with it all others, until
// remove. It returns those of which that was not reported yet.
func (f *workqueue) markFull() (unreported []item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = true
	for _, q := range f.queued {
		if !q.reported {
			q.reported = true
			unreported = append(unreported, q.item)
		}
	}
	return unreported
}

// removeJob notes that a job left the queue.
func (f *workqueue) removeJob(i item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.queued, i.uid)
	f.full = false
}
