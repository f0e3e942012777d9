package monitor

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// maxFollowed is with how many operations in memory, of some 1 KiB each, this process follows no further
// job.
const maxFollowed = 50_000

// jobs are the jobs that wait, as far as this process has seen them. Safe for concurrent use.
type jobs struct {
	clock clock.PassiveClock
	limit int // of the operations in memory
	mu    sync.Mutex
	by    map[string]*entry // by kind and name
	// deleted are jobs that are gone, or were ended, while they have operations, by kind and name.
	deleted map[string][]*entry
}

// entry is one job. Its fields are changed with the lock of jobs, but for those of the object.
type entry struct {
	uid types.UID
	// looked is when a poll of the job ended, or when it was first seen, and again after how long the
	// next one is due.
	looked   time.Time
	again    time.Duration
	busy     bool
	stopping bool      // the job is being cancelled
	job      *poll.Job // nil while it is not in memory
	// object is the job as it was last polled, gone when it was found to be no more.
	object client.Object
	gone   time.Time

	// noted is what was written last into the object, and when. The poll under way alone uses them.
	noted     operation.Summary
	notedTime time.Time
}

func newJobs(c clock.PassiveClock, limit int) *jobs {
	return &jobs{clock: c, limit: limit, by: map[string]*entry{}, deleted: map[string][]*entry{}}
}

// get returns the entry of an object, and whether it is a new one.
func (j *jobs) get(key string, uid types.UID) (e *entry, first bool) {
	e = j.by[key]
	if e == nil || e.uid != uid {
		e, first = &entry{uid: uid, looked: j.clock.Now()}, true
		j.by[key] = e
	}
	return e, first
}

// lastPoll is the last poll of a job by this process.
type lastPoll struct {
	// quiet is since when, pause after how long the next poll is due.
	quiet, pause time.Duration
	first        bool // never before
	stopping     bool
}

// lastPoll returns the last poll of a job. The pause of one that was not polled yet is that of the
// caller.
func (j *jobs) lastPoll(key string, uid types.UID, pause time.Duration) lastPoll {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, first := j.get(key, uid)
	if e.again > 0 {
		pause = e.again
	}
	return lastPoll{quiet: j.clock.Since(e.looked), pause: pause, first: first, stopping: e.stopping}
}

// enter begins a poll of a job; nil while another one is under way in this process. leave ends it.
func (j *jobs) enter(key string, uid types.UID) *entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, _ := j.get(key, uid)
	if e.busy {
		return nil
	}
	e.busy = true
	return e
}

func (j *jobs) leave(e *entry, again time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.busy, e.looked, e.again = false, j.clock.Now(), again
}

// polled notes the object of a job that is polled.
func (j *jobs) polled(e *entry, obj client.Object) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.object = obj
}

// stop notes that a job is being cancelled.
func (j *jobs) stop(e *entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.stopping = true
}

// keep keeps the operations of a job in memory.
func (j *jobs) keep(e *entry, job *poll.Job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.job = job
}

// full reports whether so many operations are in memory that no further job is followed.
func (j *jobs) full() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, e := range j.by {
		if e.job != nil {
			n += e.job.Count()
		}
	}
	return n >= j.limit
}

// open returns how many operations in memory have not ended.
func (j *jobs) open() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.by {
		if e.job != nil {
			n += e.job.Open()
		}
	}
	return n
}

// forget drops a job that waits no more.
func (j *jobs) forget(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.by, key)
}

// states returns what is in memory of the operations of a job; nil for nothing.
func (j *jobs) states(key string, uid types.UID) []operation.State {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.by[key]
	if e == nil || e.uid != uid || e.job == nil {
		return nil
	}
	return e.job.States()
}
