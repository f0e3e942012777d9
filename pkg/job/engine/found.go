package engine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// room is how many jobs that were found by looking may wait to be worked on; others are found by
// the next look.
const room = 64

// item names a job.
type item struct {
	name string
	uid  types.UID
}

// queued is a job of the queue.
type queued struct {
	item
	reported bool // that it waits
}

// found holds the jobs that were found by looking at the objects.
type found struct {
	clock clock.PassiveClock
	queue chan item

	mu      sync.Mutex
	queued  map[types.UID]*queued
	full    bool                               // the first of the queue waits for a place
	waiting map[types.NamespacedName]time.Time // since when each object is seen waiting
}

func newFound(c clock.PassiveClock) *found {
	return &found{clock: c, queue: make(chan item, room), queued: map[types.UID]*queued{}, waiting: map[types.NamespacedName]time.Time{}}
}

// waits notes whether an object waits for a process to work on it, and returns for how long it has.
func (f *found) waits(key types.NamespacedName, waits bool) time.Duration {
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

// add queues a job, unless it is queued already, and returns whether it is to be reported that it
// waits for a place. What finds no room is found again.
func (f *found) add(i item) (waits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queued[i.uid] != nil {
		return false
	}
	select {
	case f.queue <- i:
		f.queued[i.uid] = &queued{item: i, reported: f.full}
		return f.full
	default:
		return false
	}
}

// crowded notes that the first of the queue waits for a place, and with it all others, until begun.
// It returns those of which that was not reported yet.
func (f *found) crowded() (news []item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = true
	for _, q := range f.queued {
		if !q.reported {
			q.reported = true
			news = append(news, q.item)
		}
	}
	return news
}

// begun notes that a queued job left the queue.
func (f *found) begun(i item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.queued, i.uid)
	f.full = false
}
