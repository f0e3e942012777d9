package poll

import (
	"time"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// maxIntents is how often an action may be called to cancel an operation: again when the process
// that was to call it may have died before.
const maxIntents = 2

// decide returns what is to be recorded now. It changes nothing but the slots that intents to cancel
// take, so that it can be asked again.
func (j *Job) decide(now time.Time, turn Turn) []operation.Event {
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
		for _, e := range j.one(&j.memos[i], &states[i], &ops[i], now, turn) {
			if e.Cancel != nil && !j.granted(&j.memos[i], &ops[i]) {
				continue
			}
			e.Operation, e.Time = i, now.UTC().Round(0)
			events = append(events, e)
		}
	}
	return events
}

// one decides about one operation.
func (j *Job) one(m *memo, s *operation.State, op *operation.Operation, now time.Time, turn Turn) (events []operation.Event) {
	if s.Cancel == nil {
		if m.ended != nil {
			return []operation.Event{{End: m.ended}}
		}
		if reason := j.reason(m, s, op, now, turn); reason != "" {
			return []operation.Event{{Cancel: &operation.Cancel{Reason: reason}}}
		}
		return nil
	}
	answer := s.Answer
	if answer == nil && m.reply != nil {
		answer = m.reply
		events = append(events, operation.Event{Answer: answer})
	}
	waited := m.waited(s, now)
	again := answer == nil && !m.mine(s) && s.Cancels < maxIntents && waited >= j.poller.Grace/2 //nolint:mnd // half of the time is left to the call
	switch {
	case m.ended != nil:
		end := *m.ended
		end.Error = endedBy(s.Cancel, answer, m.ended.Error)
		events = append(events, operation.Event{End: &end})
	case again:
		events = append(events, operation.Event{Cancel: s.Cancel})
	case waited >= j.poller.Grace:
		events = append(events, operation.Event{End: &operation.End{Error: abandonedBy(s.Cancel, answer, m.problem), Progress: s.Progress}})
	}
	return events
}

// reason is why an operation has to end; empty for none. One that takes too long is asked about once
// more: it may have ended while nothing was polled. A call that is not answered is waited for as
// long as a call may take.
func (j *Job) reason(m *memo, s *operation.State, op *operation.Operation, now time.Time, turn Turn) string {
	switch {
	case turn.Cancel != "":
		return turn.Cancel
	case s.Request != nil:
		return s.Request.Reason
	}
	deadline := j.deadline(op, turn)
	since := deadline
	if since.Before(j.opened) {
		since = j.opened
	}
	asked := !m.asked.Before(deadline) || now.Sub(since) >= callLimit
	if now.Before(deadline) || !asked {
		return ""
	}
	return timedOut(j.timeout(op, turn))
}

// deadline is when an operation has taken too long.
func (j *Job) deadline(op *operation.Operation, turn Turn) time.Time {
	return op.Created.Add(j.timeout(op, turn))
}

// timeout is how long an operation may take.
func (j *Job) timeout(op *operation.Operation, turn Turn) time.Duration {
	if d, ok := j.poller.Timeouts[op.Action]; ok {
		return d
	}
	return turn.Timeout
}

// intend notes the intents that are about to be written by this process.
func (j *Job) intend(events []operation.Event) {
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

// withdraw takes back the intents that another process came before.
func (j *Job) withdraw(events []operation.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range events {
		if e := &events[i]; e.Cancel != nil {
			j.memos[e.Operation].intent = time.Time{}
		}
	}
}
