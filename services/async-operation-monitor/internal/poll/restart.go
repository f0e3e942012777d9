package poll

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

const (
	// restartLimit bounds a call that begins an operation once more.
	restartLimit = time.Minute
	// restartPatience is after how long without its outcome such a call of another process counts as
	// lost: no process makes it later than restartLimit after the intent.
	restartPatience = 3 * restartLimit
)

// errLate is why a call that was recorded is not made.
var errLate = errors.New("too many others were begun once more")

// restart is what this process found out about an operation whose process has ended, and that may be
// begun once more.
type restart struct {
	since time.Time // when the end of its process was seen
	// instance is where it can be begun once more; empty while that is not known.
	instance string

	intent time.Time // of the intent that this process wrote, or tried to
	sent   bool
	unread error             // why its input was not read yet; nil before the first try
	again  *action.Restarted // what the call returned, or failed with
	err    error
	// seen is when this process saw the intent of another one, seenIntent the time of that.
	seen, seenIntent time.Time
}

// mine reports that this process wrote the intent to begin the operation once more.
func (r *restart) mine(s *operation.State) bool {
	return !r.intent.IsZero() && r.intent.Equal(s.RestartTime)
}

// restarts reports whether an operation is to be begun once more: its process has ended for the
// first time, and the operation is neither cancelled nor timed out.
func (j *Job) restarts(m *memo, s *operation.State, op *operation.Operation, now time.Time, turn Turn) bool {
	free := s.Restart == nil && s.Cancel == nil && s.Request == nil && turn.Cancel == ""
	return m.gone && op.Restartable && free && !s.Phase.Ended() && now.Before(j.deadline(op, turn))
}

// prepare finds out where operations can be begun once more.
func (j *Job) prepare(ctx context.Context, turn Turn) {
	list, ops := j.lost(turn), j.log.Operations()
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	live := map[string]string{} // by the instance before
	for _, i := range list {
		before := ops[i].Home.Instance
		if _, asked := live[before]; !asked {
			live[before], _ = j.poller.Homes.Live(ctx, j.log.Job().Kind, before) // it is asked again with the next poll
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, i := range list {
		j.memos[i].restart.instance = live[ops[i].Home.Instance]
	}
}

// lost lists the operations to begin once more of which it is not known yet where.
func (j *Job) lost(turn Turn) (list []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	states, ops, now := j.log.States(), j.log.Operations(), j.poller.Clock.Now()
	for i := range j.memos {
		m := &j.memos[i]
		if m.restart.instance == "" && j.restarts(m, &states[i], &ops[i], now, turn) {
			m.due = now.Add(j.poller.frequency(&ops[i]))
			list = append(list, i)
		}
	}
	return list
}

// decideRestart decides about an operation that restarts, or one with an intent to begin it once more.
func (j *Job) decideRestart(m *memo, s *operation.State, now time.Time) []operation.Event {
	r := &m.restart
	fails := func(why string) []operation.Event {
		return []operation.Event{{End: &operation.End{Error: clip(why), Progress: s.Progress}}}
	}
	switch {
	case s.Restart == nil && r.instance != "":
		return []operation.Event{{Restart: &operation.Restart{Reason: m.ended.Error, Instance: r.instance}}}
	case s.Restart == nil && now.Sub(r.since) >= j.poller.Grace:
		return fails(notAgain(m.ended.Error, "no instance answers that can"))
	case s.Restart == nil:
		return nil
	case r.mine(s) && uncalled(r.err):
		return fails(notAgain(s.Restart.Reason, r.err.Error()))
	case r.mine(s) && r.err != nil:
		return fails(fmt.Sprintf("%s; begun once more in instance %s: %v", s.Restart.Reason, s.Restart.Instance, r.err))
	case r.mine(s) && r.again != nil:
		again := &operation.Restarted{ID: r.again.ID}
		if r.again.Process != "" {
			again.Home = &operation.Home{Instance: s.Restart.Instance, Process: r.again.Process}
		}
		return []operation.Event{{Restarted: again}}
	case !r.mine(s) && now.Sub(r.seen) >= restartPatience:
		return fails(fmt.Sprintf("%s; begun once more in instance %s, and what came of that is not known; %s", s.Restart.Reason, s.Restart.Instance, mayGoOn))
	}
	return nil
}

// resetRestarted drops what was found out about operations that were begun once more since, whichever
// process did that.
func (j *Job) resetRestarted(now time.Time) {
	ops := j.log.Operations()
	for i := range j.memos {
		if m := &j.memos[i]; m.process != processOf(&ops[i]) {
			m.process = processOf(&ops[i])
			m.ended, m.gone, m.problem = nil, false, ""
			m.failures, m.unknown = 0, 0
			m.due, m.changed, m.stalled = now, now, false
		}
	}
}

// processOf is the start ID of the process that runs an operation; empty for none.
func processOf(op *operation.Operation) string {
	if op.Home == nil {
		return ""
	}
	return op.Home.Process
}
