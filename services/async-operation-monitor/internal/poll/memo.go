package poll

import (
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

const (
	// maxUnknownAnswers is the number of polls in a row that have to return ErrUnknownOperation before it
	// counts.
	maxUnknownAnswers = 3
	// longestPause bounds the pause after calls that failed.
	longestPause = 5 * time.Minute
)

// opState is what this process found out about an operation.
type opState struct {
	due     time.Time // when it is asked about again
	calling bool
	asked   time.Time       // when the last call began that was answered
	answer  *progressAnswer // not looked at yet
	ended   *operation.End  // the end that the action reported, or that it cannot be called
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

// progressAnswer is what a call about progress returned.
type progressAnswer struct {
	began    time.Time
	progress action.Progress
	err      error
}

// isOwnIntent reports that this process wrote the last intent to cancel.
func (m *opState) isOwnIntent(s *operation.State) bool {
	return s.Cancel != nil && !m.intent.IsZero() && m.intent.Equal(s.CancelTime)
}

// absorbAnswers evaluates the answers since the last poll.
func (j *Job) absorbAnswers(now time.Time) {
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
			j.takeAnswer(m, s, op, a, now)
		}
	}
}

func (j *Job) takeAnswer(m *opState, s *operation.State, op *operation.Operation, a *progressAnswer, now time.Time) {
	pause := j.poller.pollInterval(op)
	m.asked = a.began
	switch {
	case a.err == nil:
		m.failures, m.unknown, m.problem = 0, 0, ""
		m.noteProgress(s, &a.progress, now)
	case errors.Is(a.err, operationhome.ErrGone): // which is certain
		m.problem = a.err.Error()
		m.ended = &operation.End{Error: lostReason(a.err), Progress: s.Progress}
	case errors.Is(a.err, action.ErrUnknownOperation):
		m.problem = a.err.Error()
		if m.unknown++; m.unknown >= maxUnknownAnswers {
			m.ended = &operation.End{Error: lostReason(a.err), Progress: s.Progress}
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
		pause = min(pause, max(longestPause, j.poller.pollInterval(op)))
	}
	if s.Cancel != nil {
		pause = j.poller.cancelPollInterval(op)
	}
	m.due = now.Add(pause)
}

func (m *opState) noteProgress(s *operation.State, p *action.Progress, now time.Time) {
	next := operation.Progress{
		Completed: p.Completed, Total: p.Total, Units: clipText(p.Units), Description: clipText(p.Description), Started: jsonTime(p.Started), Updated: jsonTime(p.Updated),
	}
	if !isSameProgress(&next, &s.Progress) || s.Phase == operation.New {
		m.changed, m.stalled = now, false
	}
	s.Phase, s.Progress = operation.InProgress, next
	if p.Done {
		m.ended = &operation.End{Error: clipText(p.Err), Progress: next}
	}
}

// jsonTime is a time in the precision of JSON; nil for none.
func jsonTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Round(0)
	return &t
}

func isSameProgress(a, b *operation.Progress) bool {
	return a.Completed == b.Completed && a.Total == b.Total && a.Units == b.Units && a.Description == b.Description &&
		sameTime(a.Started, b.Started) && sameTime(a.Updated, b.Updated)
}

func sameTime(a, b *time.Time) bool { return a == b || a != nil && b != nil && a.Equal(*b) }
