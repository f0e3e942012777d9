package poll

import (
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

const (
	// denials is the number of polls in a row that have to return ErrUnknownOperation before it
	// counts.
	denials = 3
	// longestPause bounds the pause after calls that failed.
	longestPause = 5 * time.Minute
)

// memo is what this process found out about an operation.
type memo struct {
	due     time.Time // when it is asked about again
	calling bool
	asked   time.Time      // when the last call began that was answered
	answer  *answer        // not looked at yet
	ended   *operation.End // the end that the action reported, or that it cannot be called
	// failures and unknown count calls in a row, problem is the last error; empty after a call that
	// did not fail.
	failures, unknown int
	problem           string

	changed time.Time // when progress last changed
	stalled bool

	// intent is the time of the intent to cancel that this process wrote, or tried to: it has to
	// call the action, once. sent is when it did, slot what it may do so with.
	intent, sent time.Time
	slot         func()
	reply        *operation.Answer
	// seen is when this process saw the intent of another one, seenIntent the time of that.
	seen, seenIntent time.Time
}

// answer is what a call about progress returned.
type answer struct {
	began    time.Time
	progress action.Progress
	err      error
}

// mine reports that this process wrote the last intent to cancel.
func (m *memo) mine(s *operation.State) bool {
	return s.Cancel != nil && !m.intent.IsZero() && m.intent.Equal(s.CancelTime)
}

// absorb evaluates the answers since the last poll.
func (j *Job) absorb(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	states, ops := j.log.States(), j.log.Operations()
	for i := range j.memos {
		m, s, op := &j.memos[i], &states[i], &ops[i]
		if s.Phase.Ended() {
			continue
		}
		if a := m.answer; a != nil {
			m.answer = nil
			j.take(m, s, op, a, now)
		}
	}
}

func (j *Job) take(m *memo, s *operation.State, op *operation.Operation, a *answer, now time.Time) {
	pause := j.poller.frequency(op)
	m.asked = a.began
	switch {
	case a.err == nil:
		m.failures, m.unknown, m.problem = 0, 0, ""
		m.progress(s, &a.progress, now)
	case errors.Is(a.err, operationhome.ErrGone): // which is certain
		m.problem = a.err.Error()
		m.ended = &operation.End{Error: lost(a.err), Progress: s.Progress}
	case errors.Is(a.err, action.ErrUnknownOperation):
		m.problem = a.err.Error()
		if m.unknown++; m.unknown >= denials {
			m.ended = &operation.End{Error: lost(a.err), Progress: s.Progress}
		}
	default:
		m.unknown, m.problem = 0, a.err.Error()
		m.failures++
		if op.Home != nil { // its end is to be seen soon
			break
		}
		for range min(m.failures-1, 10) {
			pause *= 2
		}
		pause = min(pause, max(longestPause, j.poller.frequency(op)))
	}
	if s.Cancel != nil {
		pause = j.poller.hurry(op)
	}
	m.due = now.Add(pause)
}

func (m *memo) progress(s *operation.State, p *action.Progress, now time.Time) {
	next := operation.Progress{
		Completed: p.Completed, Total: p.Total, Units: clip(p.Units), Description: clip(p.Description), Started: given(p.Started), Updated: given(p.Updated),
	}
	if !same(&next, &s.Progress) || s.Phase == operation.New {
		m.changed, m.stalled = now, false
	}
	s.Phase, s.Progress = operation.InProgress, next
	if p.Done {
		m.ended = &operation.End{Error: clip(p.Err), Progress: next}
	}
}

// given is a time in the precision of JSON; nil for none.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Round(0)
	return &t
}

func same(a, b *operation.Progress) bool {
	return a.Completed == b.Completed && a.Total == b.Total && a.Units == b.Units && a.Description == b.Description &&
		sameTime(a.Started, b.Started) && sameTime(a.Updated, b.Updated)
}

func sameTime(a, b *time.Time) bool { return a == b || a != nil && b != nil && a.Equal(*b) }
