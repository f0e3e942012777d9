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

const (
	// maxBytes bounds what the operations of all jobs that are kept in memory take there, some 1 KiB
	// each and what their actions tell. What finds no room is read again with each poll.
	maxBytes = 48 << 20
	// leastKept is how long the operations of a job stay in memory at least, while others find no
	// room: what is counted and measured from poll to poll needs that.
	leastKept = 10 * time.Minute
)

// jobs are the jobs that wait, as far as this process has seen them. Safe for concurrent use.
type jobs struct {
	clock clock.PassiveClock
	limit int           // of the operations in memory, in bytes
	hold  time.Duration // how long those of a job stay at least
	mu    sync.Mutex
	by    map[string]*entry // by kind and name
	// deleted are jobs that are gone, or were ended, while they have operations, by kind and name.
	deleted map[string][]*entry
}

// entry is one job. Its fields are changed with the lock of jobs, but for those of the object.
type entry struct {
	uid types.UID
	// looked is when a poll of the job ended, or when it was first seen, and again after how long the
	// next one is due; used is when one began.
	looked, used time.Time
	again        time.Duration
	busy         bool
	stopping     bool      // the job is being cancelled
	job          *poll.Job // nil while it is not in memory
	kept         time.Time // since when it is in memory
	passing      bool      // it found no room, and is in memory for this poll alone
	// object is the job as it was last polled, gone when it was found to be no more.
	object client.Object
	gone   time.Time

	// noted is what was written last into the object, and when. The poll under way alone uses them.
	noted     operation.Summary
	notedTime time.Time
}

func newJobs(c clock.PassiveClock, limit int, hold time.Duration) *jobs {
	return &jobs{clock: c, limit: limit, hold: hold, by: map[string]*entry{}, deleted: map[string][]*entry{}}
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
	e.busy, e.used = true, j.clock.Now()
	return e
}

func (j *jobs) leave(e *entry, again time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.busy, e.looked, e.again = false, j.clock.Now(), again
	if e.passing {
		e.job, e.passing = nil, false
	}
	_ = j.shrink(e) // what is left stays: it has not had its time
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

// keep keeps the operations of a job in memory. Where they do not fit beside those of others they are
// kept for this poll alone.
func (j *jobs) keep(e *entry, job *poll.Job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.job, e.kept = job, j.clock.Now()
	e.passing = !j.shrink(e)
}

// shrink drops the operations of the jobs that have been in memory for longest, none before its time
// and not those of e, while all take too much. It returns whether they fit, or e has no others beside
// it.
func (j *jobs) shrink(e *entry) (fits bool) {
	for j.bytes() > j.limit {
		var oldest *entry
		others := false
		for _, other := range j.by {
			if other == e || other.job == nil || other.passing {
				continue
			}
			others = true
			if j.yields(other, e) && (oldest == nil || other.kept.Before(oldest.kept)) {
				oldest = other
			}
		}
		if oldest == nil {
			return !others
		}
		oldest.job = nil
	}
	return true
}

// yields reports whether a job gives its room to another one: when it had its time, but not in the
// middle of cancels unless it had that twice over; to one that is being cancelled at once.
func (j *jobs) yields(e, to *entry) bool {
	kept := j.clock.Since(e.kept)
	switch {
	case e.busy:
		return false
	case to.stopping && !e.stopping, kept >= 3*j.hold: //nolint:mnd // its time, and twice more
		return true
	}
	return kept >= j.hold && !e.job.Cancelling()
}

func (j *jobs) bytes() (n int) {
	for _, e := range j.by {
		if e.job != nil && !e.passing {
			n += e.job.Bytes()
		}
	}
	return n
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
