package poll

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// maxInputs bounds the calls that begin operations once more at the same time, in bytes of their
	// inputs and jobs, and maxShared where an action in an instance, which may hang, has one under way
	// already: the rest is for the first calls of others. The largest call fits into both. In memory of
	// this process each takes three times as much, as it is read, decoded and sent, and so in that of
	// the runner that is called.
	maxInputs = 4 * operation.MaxInputBytes
	maxShared = maxInputs / 2
	// inputLimit bounds the reading of one input, and prepareLimit that of all in one poll.
	inputLimit   = 15 * time.Second
	prepareLimit = 2 * inputLimit
)

// heldInput is what to begin an operation once more with. Release frees its slot and its room.
type heldInput struct {
	operation.Input
	release func()
}

// room is for what calls have in memory. Safe for concurrent use.
type room struct {
	mu    sync.Mutex
	total int64
	of    map[string]int // how many calls, by queue
}

// take takes room for one call; release is nil where there is none.
func (r *room) take(queue string, size int64) (release func()) {
	size = min(size, maxShared)
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := int64(maxInputs)
	if r.of[queue] > 0 {
		limit = maxShared
	}
	if r.total+size > limit {
		return nil
	}
	r.total += size
	r.of[queue]++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.total -= size
		if r.of[queue]--; r.of[queue] == 0 {
			delete(r.of, queue)
		}
	})
}

// prepare finds out where, and with what, operations can be begun once more, as far as there are slots
// and room for the calls: each follows its intent at once.
func (j *Job) prepare(ctx context.Context, turn Turn) {
	list, ops := j.lost(turn), j.log.Operations()
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, prepareLimit)
	defer cancel()
	live := j.live(ctx, list)
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, i := range list {
		if instance := live[ops[i].Home.Instance]; j.found(i, instance) {
			group.Go(func() error {
				j.hold(ctx, i, int64(len(turn.JSON)))
				return nil
			})
		}
	}
	_ = group.Wait() // none fails
}

// live returns the instances where operations of a list can be begun once more, by those they lived
// in; empty for none.
func (j *Job) live(ctx context.Context, list []int) map[string]string {
	ops, kind := j.log.Operations(), j.log.Job().Kind
	live, mu := map[string]string{}, sync.Mutex{}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, i := range list {
		before := ops[i].Home.Instance
		mu.Lock()
		_, asked := live[before]
		if !asked {
			live[before] = ""
		}
		mu.Unlock()
		if asked {
			continue
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, window)
			defer cancel()
			instance, _ := j.poller.Homes.Live(ctx, kind, before) // it is asked again with the next poll
			mu.Lock()
			defer mu.Unlock()
			live[before] = instance
			return nil
		})
	}
	_ = group.Wait() // none fails
	return live
}

// lost lists the operations to begin once more, and those whose call is still to be made.
func (j *Job) lost(turn Turn) (list []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queued = false
	states, ops, now := j.log.States(), j.log.Operations(), j.poller.Clock.Now()
	for i := range j.memos {
		m, s := &j.memos[i], &states[i]
		r := &m.restart
		owed := s.Restarting() && !s.Phase.Ended() && r.mine(s) && !r.called && now.Sub(r.intent) < restartLimit
		if owed || j.restarts(m, s, &ops[i], now, turn) {
			m.due = now.Add(j.poller.frequency(&ops[i]))
			list = append(list, i)
		}
	}
	return list
}

// found notes the instance where an operation can be begun once more, if there is one.
func (j *Job) found(i int, instance string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &j.memos[i].restart
	if r.instance = instance; instance == "" {
		r.unread = nil
		j.miss(i)
	}
	return instance != ""
}

// miss notes that an operation cannot be begun once more at the moment; the caller holds the lock. A time
// in which the job was not polled does not count.
func (j *Job) miss(i int) {
	r, now := &j.memos[i].restart, j.poller.Clock.Now()
	polled := max(j.poller.Grace, 2*j.poller.frequency(&j.log.Operations()[i]))
	if r.missing.IsZero() || now.Sub(r.missed) > polled {
		r.missing = now
	}
	r.missed = now
}

// hold reads the input of an operation if there is a slot for its call, and room for the input and the
// job. One that ctx did not leave its time is read with the next poll.
func (j *Job) hold(ctx context.Context, i int, job int64) {
	limited, cancel := context.WithTimeout(ctx, inputLimit)
	defer cancel()
	began := j.poller.Clock.Now()
	held, err := j.takeInput(limited, i, job)
	if err != nil && ctx.Err() != nil && j.poller.Clock.Since(began) < inputLimit {
		err = errFull
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &j.memos[i].restart
	switch {
	case errors.Is(err, errFull):
		j.queued, r.missing, r.missed, r.unread = true, time.Time{}, time.Time{}, nil
	case err == nil:
		r.held, r.missing, r.missed, r.unread = held, time.Time{}, time.Time{}, nil
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, operation.ErrDamaged):
		r.refused = err.Error()
	default:
		j.miss(i)
		r.unread = err
	}
}

// errFull means that there is no slot, or no room.
var errFull = errors.New("too many are begun once more")

func (j *Job) takeInput(ctx context.Context, i int, job int64) (*heldInput, error) {
	p, of := j.poller, queue(&j.log.Operations()[i])
	slot := p.starts.take(of, j)
	if slot == nil {
		return nil, errFull
	}
	size, err := j.log.InputBytes(ctx, i)
	if err != nil {
		slot()
		return nil, err
	}
	room := p.room.take(of, size+job)
	if room == nil {
		slot()
		return nil, errFull
	}
	release := func() {
		room()
		slot()
	}
	in, err := j.log.Input(ctx, i)
	if err != nil {
		release()
		return nil, err
	}
	return &heldInput{in, release}, nil
}

// letGo drops the inputs of calls that the poll has not made.
func (j *Job) letGo() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.memos {
		if r := &j.memos[i].restart; r.held != nil {
			r.held.release()
			r.held = nil
		}
	}
}
