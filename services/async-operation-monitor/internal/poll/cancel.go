package poll

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// settleRecords records what is due, and calls the actions whose intents to cancel it recorded. An intent
// is recorded once its call has a slot. Where operations wait for one, it continues while the
// window is open and calls return.
func (j *Job) settleRecords(ctx context.Context, turn Input) error {
	timer := j.poller.Clock.NewTimer(window)
	defer timer.Stop()
	for {
		err := j.recordDueEvents(ctx, turn)
		j.callCancels(ctx, turn)
		if err != nil || !j.crowded {
			return err
		}
		select {
		case <-j.returned:
		case <-timer.C():
			return nil
		case <-ctx.Done():
			return nil
		}
		if retry.Pause(ctx, j.poller.Clock, recordDelay) != nil {
			return nil
		}
	}
}

// recordDelay is how long further calls may return after a first one, to share a record.
const recordDelay = 100 * time.Millisecond

// hasCancelSlot reports whether a call to cancel has a slot, which it takes if it has none yet.
func (j *Job) hasCancelSlot(m *opState, op *operation.Operation) bool {
	if m.slot == nil {
		m.slot = j.poller.cancels.takeSlot(op.QueueName(), j)
	}
	if m.slot == nil {
		j.crowded = true
	}
	return m.slot != nil
}

// callCancels calls the actions whose intents this process recorded. The slots of the others are free
// again.
func (j *Job) callCancels(ctx context.Context, turn Input) {
	j.mu.Lock()
	defer j.mu.Unlock()
	states, ops, now := j.log.States(), j.log.Operations(), j.poller.Clock.Now()
	for i := range j.memos {
		m, s := &j.memos[i], &states[i]
		due := m.isOwnIntent(s) && m.sent.IsZero() && !s.Phase.Ended()
		if due && j.hasCancelSlot(m, &ops[i]) {
			m.sent = now
			release := m.slot
			m.slot = nil
			j.poller.calls.Go(func() { j.cancelOperation(ctx, i, &ops[i], turn.JSON, release) })
		}
		if m.slot != nil {
			m.slot()
			m.slot = nil
		}
	}
}

// cancelOperation makes one call within the grace period, and keeps the answer. Its slot is free once it
// returns, or when its time is over.
func (j *Job) cancelOperation(ctx context.Context, i int, op *operation.Operation, job []byte, release func()) {
	p := j.poller
	var accepted bool
	var err error
	defer func() {
		release()
		select {
		case j.returned <- struct{}{}:
		default:
		}
	}()
	p.callBounded(ctx, p.Grace, func(ctx context.Context) {
		defer context.AfterFunc(ctx, release)()
		accepted, err = p.Actions.ActionOf(op).Cancel(ctx, op.ActionOperation(), job, p.Grace)
	})
	if p.life.Err() != nil && err != nil {
		return
	}
	reply := &operation.Answer{Accepted: accepted && err == nil}
	if err != nil {
		reply.Error = clipText(err.Error())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.memos[i].reply = reply
}

// noteForeignIntents notes when this process first read the intents that others recorded.
func (j *Job) noteForeignIntents(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	states := j.log.States()
	for i := range j.memos {
		m, s := &j.memos[i], &states[i]
		if s.Cancel != nil && !s.Phase.Ended() && !m.isOwnIntent(s) && !m.seenIntent.Equal(s.CancelTime) {
			m.seenIntent, m.seen = s.CancelTime, now
		}
	}
}

// graceUsed is how much of its grace period an operation has had. Only the clock of this process
// counts: it begins with the call that this process made, or where another one was to make it, when
// this process saw the intent.
func (m *opState) graceUsed(s *operation.State, now time.Time) time.Duration {
	switch {
	case m.isOwnIntent(s) && !m.sent.IsZero():
		return now.Sub(m.sent)
	case !m.isOwnIntent(s) && m.seenIntent.Equal(s.CancelTime):
		return now.Sub(m.seen)
	}
	return 0
}
