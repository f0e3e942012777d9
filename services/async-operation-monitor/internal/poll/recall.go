package poll

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// maxInputs bounds the calls that begin operations once more at the same time, in bytes of their inputs
// and jobs. In memory of this process, and of the runner that is called, each takes three times as
// much: as it is read, decoded and sent on.
const maxInputs = 4 * operation.MaxInputBytes

// unreadError is why the input of an operation is not known. The action was not called.
type unreadError struct{ err error }

// Error implements error.
func (e *unreadError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *unreadError) Unwrap() error { return e.err }

// final reports an error with which reading again fails too.
func (e *unreadError) final() bool {
	return errors.Is(e.err, objectstore.ErrNotFound) || errors.Is(e.err, operation.ErrDamaged)
}

// uncalled reports an error with which the action was not called.
func uncalled(err error) bool {
	var unread *unreadError
	return errors.As(err, &unread) || errors.Is(err, errLate) || errors.Is(err, action.ErrNotRestartable) || errors.Is(err, action.ErrUnknownAction)
}

// recall is a call that begins an operation once more.
type recall struct {
	*action.Restart // without the item
	instance        string
	turn            Turn
}

// callRestarts makes the calls whose intents this process recorded.
func (j *Job) callRestarts(ctx context.Context, turn Turn) {
	var list []int
	calls := map[int]*recall{}
	j.mu.Lock()
	states, ops := j.log.States(), j.log.Operations()
	for i := range j.memos {
		m, s, op := &j.memos[i], &states[i], &ops[i]
		r := &m.restart
		if !s.Restarting() || s.Phase.Ended() || !r.mine(s) || r.sent {
			continue
		}
		r.sent = true
		calls[i] = &recall{&action.Restart{Kind: op.Kind, Action: op.Action, Key: op.Key, Job: turn.JSON}, r.instance, turn}
		list = append(list, i)
	}
	j.mu.Unlock()
	if len(list) > 0 {
		j.each(j.poller.starts, list, j.poller.life.Done(), func(i int) { j.callRestart(ctx, i, calls[i]) })
	}
}

// callRestart makes one call and keeps what it returned. One whose input is not read is made again
// with the next poll, until it is late.
func (j *Job) callRestart(ctx context.Context, i int, call *recall) {
	p, r := j.poller, &j.memos[i].restart
	j.mu.Lock()
	intent, err := r.intent, r.unread
	j.mu.Unlock()
	if err == nil {
		err = errLate
	}
	var again action.Restarted
	if left := restartLimit - p.Clock.Since(intent); left > 0 {
		p.bounded(ctx, restartLimit, func(ctx context.Context) { again, err = p.recall(ctx, j.log.Job(), call) })
	}
	if p.life.Err() != nil && err != nil {
		return // a call that the end of this process cut off is no failed one
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var unread *unreadError
	switch {
	case err == nil:
		r.again = &again
	case errors.As(err, &unread) && !unread.final() && p.Clock.Since(intent) < restartLimit:
		r.unread, r.sent = err, false
	default:
		r.err = err
	}
}

// recall reads the input of an operation and begins it once more. The bucket of the poll that recorded
// the intent may be closed by now.
func (p *Poller) recall(ctx context.Context, job operation.Job, call *recall) (action.Restarted, error) {
	in, release, err := p.input(ctx, job, call)
	if err != nil {
		return action.Restarted{}, &unreadError{err}
	}
	defer release()
	with := *call.Restart // call is kept until the others of its poll are made
	with.Item, with.FromBackup = in.Item, in.FromBackup
	return p.Homes.Restart(ctx, call.instance, &with)
}

// input reads what to make a call with, once there is room for it; release is for when it is not
// needed any more.
func (p *Poller) input(ctx context.Context, job operation.Job, call *recall) (in operation.Input, release func(), err error) {
	store, err := call.turn.Open(ctx)
	if err != nil {
		return in, nil, err
	}
	defer func() { _ = store.Close() }() // what was read is whole
	size, err := operation.InputBytes(ctx, store, job, call.Key)
	if err != nil {
		return in, nil, err
	}
	size = min(size+int64(len(call.Job)), maxInputs)
	if err := p.inputs.Acquire(ctx, size); err != nil {
		return in, nil, fmt.Errorf("%w: %w", errLate, err)
	}
	in, err = operation.ReadInput(ctx, store, job, call.Key)
	if err != nil {
		p.inputs.Release(size)
		return operation.Input{}, nil, err
	}
	return in, func() { p.inputs.Release(size) }, nil
}
