package poll

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// maxEvents bounds a record, beside operation.CountFitting.
	maxEvents = 4000
	// maxRecords bounds the attempts to write records in one poll.
	maxRecords = 20
)

// Job is the operations of one job, and what this process found out about them. Safe for concurrent
// use.
type Job struct {
	poller *Poller
	turn   sync.Mutex     // one poll at a time
	log    *operation.Log // with turn
	opened time.Time
	// crowded: operations have to be cancelled and wait for slots. Poll's alone.
	crowded  bool
	returned chan struct{} // has a value once calls to cancel have returned

	mu    sync.Mutex
	memos []opState
	seen  []operation.State // as of the end of the last poll
}

// Input is what a poll goes by.
type Input struct {
	// JSON is the Backup or Restore.
	JSON []byte
	// Timeout is the timeout in the job's spec.
	Timeout time.Duration
	// Cancel is the reason why all operations have to end; empty while there is none.
	Cancel string
}

// Report is what a poll found.
type Report struct {
	// Ended: all operations have ended.
	Ended bool
	// Next is when the next poll is due.
	Next time.Duration
	// Stalled are the operations that were found to make no progress.
	Stalled []Stall
}

// Stall is an operation that makes no progress.
type Stall struct {
	Operation operation.Operation
	// For is since when.
	For time.Duration
}

// Open reads the operations of a job. Its errors are those of operation.Open.
func (p *Poller) Open(ctx context.Context, store objectstore.Store, job operation.Job) (*Job, error) {
	log, err := operation.Open(ctx, store, job)
	if err != nil {
		return nil, err
	}
	j := &Job{poller: p, log: log, memos: make([]opState, len(log.Operations())), seen: slices.Clone(log.States()), returned: make(chan struct{}, 1)}
	now := p.Clock.Now()
	j.opened = now
	for i := range j.memos {
		j.memos[i].changed = now
	}
	return j, nil
}

// States returns the states of the operations as the last poll left them, in the order of the list.
func (j *Job) States() []operation.State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.seen)
}

// Open returns how many operations had not ended when the last poll did.
func (j *Job) Open() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for i := range j.seen {
		if !j.seen[i].Phase.Ended() {
			n++
		}
	}
	return n
}

// Summary returns how far the operations are.
func (j *Job) Summary() operation.Summary {
	j.turn.Lock()
	defer j.turn.Unlock()
	return j.log.Summary()
}

// ReadRecords reads what was recorded in store since the last poll.
func (j *Job) ReadRecords(ctx context.Context, store objectstore.Store) error {
	j.turn.Lock()
	defer j.turn.Unlock()
	j.log.Use(store)
	return j.log.Refresh(ctx)
}

// CancelOpen cancels the operations that have not ended, after which the job must not be polled.
func (j *Job) CancelOpen(ctx context.Context, job client.Object, reason string) error {
	j.turn.Lock()
	defer j.turn.Unlock()
	c := operation.Canceller{Actions: j.poller.Actions, Clock: j.poller.Clock, Log: j.poller.Log}
	return c.CancelOpen(ctx, j.log, job, reason)
}

// Poll calls Progress of the operations that are due, and records what follows in store. It does
// not wait for calls that hang: their answers count in a later poll. An error means that the store
// failed, in which case the next poll continues, or is ErrClosed.
func (j *Job) Poll(ctx context.Context, store objectstore.Store, turn Input) (Report, error) {
	ctx, done, err := j.poller.beginPoll(ctx)
	if err != nil {
		return Report{}, err
	}
	defer done()
	j.turn.Lock()
	defer j.turn.Unlock()
	j.log.Use(store)
	if err := j.log.Refresh(ctx); err != nil {
		return Report{}, err
	}
	turn.Cancel = operation.ClipTo(turn.Cancel, maxReason)
	j.pollDueOperations(ctx, turn)
	now := j.poller.Clock.Now()
	j.absorbAnswers(now)
	err = j.settleRecords(ctx, turn)
	report := j.makeReport(now, turn)
	return report, err
}

// recordDueEvents writes what is due to be recorded. Of several replicas one is first, and the others decide
// again by what it wrote.
func (j *Job) recordDueEvents(ctx context.Context, turn Input) error {
	var err error
	for range maxRecords {
		now := j.poller.Clock.Now()
		j.noteForeignIntents(now)
		events := j.dueEvents(now, turn)
		if len(events) == 0 {
			return nil
		}
		events = events[:operation.CountFitting(events)]
		j.noteIntents(events)
		err = j.log.Append(ctx, events...)
		switch {
		case errors.Is(err, operation.ErrConflict):
			j.withdrawIntents(events)
		case err != nil:
			return err
		default:
			j.countEvents(events)
		}
	}
	return err
}

// makeReport is taken at the end of a poll.
func (j *Job) makeReport(now time.Time, turn Input) Report {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen = slices.Clone(j.log.States())
	r := Report{Ended: j.log.Ended()}
	if !r.Ended {
		r.Next = j.nextPoll(j.poller.Clock.Now(), turn)
		r.Stalled = j.stalledOperations(now)
	}
	return r
}

// countEvents counts the operations that ended, and drops those that were given up from their processes,
// which have reported all other ends themselves.
func (j *Job) countEvents(events []operation.Event) {
	ops, states := j.log.Operations(), j.log.States()
	var givenUp []int
	j.mu.Lock()
	for i := range events {
		at := events[i].Operation
		if events[i].End != nil {
			j.poller.Metrics.Ended(string(states[at].Phase))
			if ops[at].Home != nil && j.memos[at].ended == nil {
				givenUp = append(givenUp, at)
			}
		}
	}
	j.mu.Unlock()
	if len(givenUp) > 0 {
		j.eachWithSlot(j.poller.progress, givenUp, j.poller.life.Done(), func(i int) {
			j.poller.callBounded(j.poller.life, callLimit, func(ctx context.Context) { j.poller.Actions.ForgetOperation(ctx, &ops[i]) })
		})
	}
}
