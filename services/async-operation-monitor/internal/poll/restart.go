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
var errLate = errors.New("its record was written too late")

// restart is what this process found out about an operation whose process has ended, and that may be
// begun once more.
type restart struct {
	// missing and missed are the first and the last time in a row that no instance answered, or its input
	// was not read; zero while neither is so.
	missing, missed time.Time
	// held is what to call the action with, from prepare to the call, or to the end of the poll.
	held *heldInput
	// instance is where; empty while that is not known.
	instance string
	// unread is why there is no input; nil where none was tried to be read.
	unread error
	// refused is why it is not begun once more; empty if it may be.
	refused string

	intent time.Time // of the intent that this process wrote, or tried to
	called bool
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
	return m.gone && op.Restartable && free && !s.Phase.Ended() && m.restart.refused == "" && now.Before(j.deadline(op, turn))
}

// decideRestart decides about an operation that restarts, or one with an intent to begin it once more.
func (j *Job) decideRestart(m *memo, s *operation.State, now time.Time) []operation.Event {
	r := &m.restart
	fails := func(why string) []operation.Event {
		return []operation.Event{{End: &operation.End{Error: clip(why), Progress: s.Progress}}}
	}
	switch {
	case s.Restart == nil && r.held != nil:
		return []operation.Event{{Restart: &operation.Restart{Reason: m.ended.Error, Instance: r.instance}}}
	case s.Restart == nil && r.missed.Sub(r.missing) >= j.poller.Grace:
		why := "no instance answers that can"
		if r.unread != nil {
			why = r.unread.Error()
		}
		return fails(notAgain(m.ended.Error, why))
	case s.Restart == nil:
		return nil
	case r.mine(s) && !r.called && now.Sub(r.intent) >= restartLimit:
		return fails(notAgain(s.Restart.Reason, errLate.Error()))
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

// uncalled reports an error with which the action was not called.
func uncalled(err error) bool {
	return errors.Is(err, action.ErrNotRestartable) || errors.Is(err, action.ErrUnknownAction)
}

// callRestarts makes the calls whose intents this process recorded.
func (j *Job) callRestarts(ctx context.Context, turn Turn) {
	j.mu.Lock()
	defer j.mu.Unlock()
	states, ops, now := j.log.States(), j.log.Operations(), j.poller.Clock.Now()
	for i := range j.memos {
		m, s, op := &j.memos[i], &states[i], &ops[i]
		r := &m.restart
		if !s.Restarting() || s.Phase.Ended() || !r.mine(s) || r.called || r.held == nil || now.Sub(r.intent) >= restartLimit {
			continue
		}
		held, instance := r.held, s.Restart.Instance
		r.held, r.called = nil, true
		call := &action.Restart{Kind: op.Kind, Action: op.Action, Key: op.Key, Job: turn.JSON, Item: held.Item, FromBackup: held.FromBackup}
		j.poller.calls.Go(func() {
			defer held.release()
			j.callRestart(ctx, i, instance, call)
		})
	}
}

// callRestart makes one call and keeps what it returned.
func (j *Job) callRestart(ctx context.Context, i int, instance string, call *action.Restart) {
	p := j.poller
	var again action.Restarted
	var err error
	p.bounded(ctx, restartLimit, func(ctx context.Context) { again, err = p.Homes.Restart(ctx, instance, call) })
	if p.life.Err() != nil && err != nil {
		return // a call that the end of this process cut off is no failed one
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &j.memos[i].restart
	if r.err = err; err == nil {
		r.again = &again
	}
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
