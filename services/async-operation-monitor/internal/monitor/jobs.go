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

// jobTable are the jobs that wait, as far as this process has seen them. Safe for concurrent use.
type jobTable struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	by    map[string]*jobEntry // by kind and name
}

// jobEntry is one job. Its fields are changed with the lock of jobs, but for those of the object.
type jobEntry struct {
	uid types.UID
	// looked is when a poll of the job ended, or when it was first seen, and again after how long the
	// next one is due.
	looked   time.Time
	again    time.Duration
	busy     bool
	stopping bool          // the job is being cancelled
	job      *poll.Job     // nil while it is not in memory
	object   client.Object // the job as it was last polled

	// noted is what was written last into the object, and when. The poll under way alone uses them.
	noted     operation.Summary
	notedTime time.Time
}

func newJobs(c clock.PassiveClock) *jobTable {
	return &jobTable{clock: c, by: map[string]*jobEntry{}}
}

// getEntry returns the entry of an object, and whether it is a new one.
func (j *jobTable) getEntry(key string, uid types.UID) (e *jobEntry, first bool) {
	e = j.by[key]
	if e == nil || e.uid != uid {
		e, first = &jobEntry{uid: uid, looked: j.clock.Now()}, true
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
func (j *jobTable) lastPoll(key string, uid types.UID, pause time.Duration) lastPoll {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, first := j.getEntry(key, uid)
	if e.again > 0 {
		pause = e.again
	}
	return lastPoll{quiet: j.clock.Since(e.looked), pause: pause, first: first, stopping: e.stopping}
}

// beginPoll begins a poll of a job; nil while another one is under way in this process. leave ends it.
func (j *jobTable) beginPoll(key string, uid types.UID) *jobEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, _ := j.getEntry(key, uid)
	if e.busy {
		return nil
	}
	e.busy = true
	return e
}

func (j *jobTable) endPoll(e *jobEntry, again time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.busy, e.looked, e.again = false, j.clock.Now(), again
}

// notePolled notes the object of a job that is polled.
func (j *jobTable) notePolled(e *jobEntry, obj client.Object) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.object = obj
}

// noteCancelled notes that a job is being cancelled.
func (j *jobTable) noteCancelled(e *jobEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.stopping = true
}

// keepOperations keeps the operations of a job in memory.
func (j *jobTable) keepOperations(e *jobEntry, job *poll.Job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.job = job
}

// countOpen returns how many operations in memory have not ended.
func (j *jobTable) countOpen() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.by {
		if e.job != nil {
			n += e.job.Open()
		}
	}
	return n
}

// followedJob returns the job of that name that this process follows; nil for none.
func (j *jobTable) followedJob(key string) *jobEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.by[key]
}

// forgetJob drops a job that waits no more.
func (j *jobTable) forgetJob(key string, e *jobEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.by[key] == e {
		delete(j.by, key)
	}
}

// forgetIdle drops a job that waits no more, and returns what is in memory of it. A poll under way may still
// read its operations: the job stays then, and idle is false.
func (j *jobTable) forgetIdle(key string, e *jobEntry) (job *poll.Job, object client.Object, idle bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.busy {
		return nil, nil, false
	}
	if j.by[key] == e {
		delete(j.by, key)
	}
	return e.job, e.object, true
}

// operationStates returns what is in memory of the operations of a job; nil for nothing.
func (j *jobTable) operationStates(key string, uid types.UID) []operation.State {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.by[key]
	if e == nil || e.uid != uid || e.job == nil {
		return nil
	}
	return e.job.States()
}
