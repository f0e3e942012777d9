package poll

import (
	"time"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// maxIntents is how often an action may be called to cancel an operation: again when the process
// that was to call it may have died before.
const maxIntents = 2

// decisionInput is what a decision about one operation goes by.
type decisionInput struct {
	memo  *opState         // what this process found out about the operation
	state *operation.State // what is recorded of it
	// created is when the operation began, opened when this process began to follow its job.
	created, opened time.Time
	// cancel is why all operations of the job have to end; empty for none.
	cancel         string
	timeout, grace time.Duration
}

// decideEvents returns what is to be recorded of an operation that has not ended. It changes nothing.
// A decision is one of these:
//
//   - nothing: the operation continues
//   - End: its action reported the end, or the operation is lost
//   - Cancel, the intent to cancel it: a user asked (Request, which the server of CancelOperation
//     records), its job has to end, or its time is over
//
// and after an intent (decideCancelled):
//
//   - Answer: the action answered the call to cancel
//   - Cancel again: the process that was to make the call may have died, maxIntents in all
//   - End: as above, or the grace is over and the operation is abandoned
func decideEvents(in *decisionInput, now time.Time) []operation.Event {
	switch {
	case in.state.Cancel != nil:
		return decideCancelled(in, now)
	case in.memo.ended != nil:
		return []operation.Event{{End: in.memo.ended}}
	}
	if reason := cancelReason(in, now); reason != "" {
		return []operation.Event{{Cancel: &operation.Cancel{Reason: reason}}}
	}
	return nil
}

// decideCancelled is decideEvents of an operation with an intent to cancel it.
func decideCancelled(in *decisionInput, now time.Time) (events []operation.Event) {
	m, s := in.memo, in.state
	answer := s.Answer
	if answer == nil && m.reply != nil {
		answer = m.reply
		events = append(events, operation.Event{Answer: answer})
	}
	waited := m.graceUsed(s, now)
	repeats := answer == nil && !m.isOwnIntent(s) && s.Cancels < maxIntents && waited >= in.grace/2 //nolint:mnd // half of the time is left to the call
	switch {
	case m.ended != nil:
		end := *m.ended
		end.Error = explainFailure(s.Cancel, answer, m.ended.Error)
		events = append(events, operation.Event{End: &end})
	case repeats:
		events = append(events, operation.Event{Cancel: s.Cancel})
	case waited >= in.grace:
		events = append(events, operation.Event{End: &operation.End{Error: abandonedBy(s.Cancel, answer, m.problem), Progress: s.Progress}})
	}
	return events
}

// cancelReason is why an operation has to end; empty for none. An operation that takes too long is
// polled after its deadline before it is cancelled: it may have ended while nothing was polled. A call
// that is not answered is waited for as long as a call may take.
func cancelReason(in *decisionInput, now time.Time) string {
	switch {
	case in.cancel != "":
		return in.cancel
	case in.state.Request != nil:
		return in.state.Request.Reason
	}
	deadline := in.created.Add(in.timeout)
	since := deadline
	if since.Before(in.opened) {
		since = in.opened
	}
	polled := !in.memo.asked.Before(deadline) || now.Sub(since) >= callLimit
	if now.Before(deadline) || !polled {
		return ""
	}
	return timeoutReason(in.timeout)
}

// dueEvents returns what is to be recorded now. It changes nothing but the slots that intents to
// cancel take, so that it can be called again.
func (j *Job) dueEvents(now time.Time, turn Input) []operation.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.crowded = false
	var events []operation.Event
	states, ops := j.log.States(), j.log.Operations()
	for i := range j.memos {
		if len(events) >= maxEvents {
			break
		}
		if states[i].Phase.Ended() {
			continue
		}
		in := decisionInput{
			memo: &j.memos[i], state: &states[i], created: ops[i].Created, opened: j.opened,
			cancel: turn.Cancel, timeout: j.operationTimeout(&ops[i], turn), grace: j.poller.Grace,
		}
		for _, e := range decideEvents(&in, now) {
			if e.Cancel != nil && !j.hasCancelSlot(&j.memos[i], &ops[i]) {
				continue
			}
			e.Operation, e.Time = i, now.UTC().Round(0)
			events = append(events, e)
		}
	}
	return events
}

// operationDeadline is when an operation has taken too long.
func (j *Job) operationDeadline(op *operation.Operation, turn Input) time.Time {
	return op.Created.Add(j.operationTimeout(op, turn))
}

// operationTimeout is how long an operation may take.
func (j *Job) operationTimeout(op *operation.Operation, turn Input) time.Duration {
	if d, ok := j.poller.Timeouts[op.Action]; ok {
		return d
	}
	return turn.Timeout
}

// noteIntents notes the intents that are about to be written by this process.
func (j *Job) noteIntents(events []operation.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range events {
		e := &events[i]
		if m := &j.memos[e.Operation]; e.Cancel != nil {
			m.intent, m.sent, m.reply = e.Time, time.Time{}, nil
			m.due = e.Time // its progress matters now
		}
	}
}

// withdrawIntents takes back the intents that another process came before.
func (j *Job) withdrawIntents(events []operation.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range events {
		if e := &events[i]; e.Cancel != nil {
			j.memos[e.Operation].intent = time.Time{}
		}
	}
}
