package poll

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
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
	// input is what to call the action with, instance where; nil and empty while that is not known.
	input    *operation.Input
	instance string
	// unread is why input is not known; nil before the first try.
	unread error
	// refused is why it is not begun once more; empty if it may be.
	refused string

	intent time.Time // of the intent that this process wrote, or tried to
	sent   bool
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

// prepare finds out where, and with what, operations can be begun once more.
func (j *Job) prepare(ctx context.Context, turn Turn) {
	list, ops, p := j.lost(turn), j.log.Operations(), j.poller
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	live := map[string]string{} // by the instance before
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, i := range list {
		before := ops[i].Home.Instance
		if _, asked := live[before]; !asked {
			live[before], _ = p.Homes.Live(ctx, j.log.Job().Kind, before) // it is asked again with the next poll
		}
		instance := live[before]
		group.Go(func() error {
			j.prepareOne(groupCtx, i, instance)
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// lost lists the operations to begin once more of which it is not known yet where, or with what.
func (j *Job) lost(turn Turn) (list []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	states, ops, now := j.log.States(), j.log.Operations(), j.poller.Clock.Now()
	for i := range j.memos {
		m := &j.memos[i]
		if ready := m.restart.input != nil && m.restart.instance != ""; !ready && j.restarts(m, &states[i], &ops[i], now, turn) {
			m.due = now.Add(j.poller.frequency(&ops[i]))
			list = append(list, i)
		}
	}
	return list
}

func (j *Job) prepareOne(ctx context.Context, i int, instance string) {
	in, err := j.log.Input(ctx, i)
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &j.memos[i].restart
	switch {
	case err == nil:
		r.input, r.instance = &in, instance
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, operation.ErrDamaged):
		r.refused = err.Error()
	default:
		r.unread = err
	}
}

// decideRestart decides about an operation that restarts, or one with an intent to begin it once more.
func (j *Job) decideRestart(m *memo, s *operation.State, now time.Time) []operation.Event {
	r := &m.restart
	fails := func(why string) []operation.Event {
		return []operation.Event{{End: &operation.End{Error: clip(why), Progress: s.Progress}}}
	}
	switch {
	case s.Restart == nil && r.input != nil && r.instance != "":
		return []operation.Event{{Restart: &operation.Restart{Reason: m.ended.Error, Instance: r.instance}}}
	case s.Restart == nil && now.Sub(r.since) >= j.poller.Grace:
		why := "no instance answers that can"
		if r.input == nil && r.unread != nil {
			why = r.unread.Error()
		}
		return fails(notAgain(m.ended.Error, why))
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

// uncalled reports an error with which the action was not called.
func uncalled(err error) bool {
	return errors.Is(err, errLate) || errors.Is(err, action.ErrNotRestartable) || errors.Is(err, action.ErrUnknownAction)
}

// callRestarts makes the calls whose intents this process recorded.
func (j *Job) callRestarts(ctx context.Context, turn Turn) {
	var list []int
	calls := map[int]*action.Restart{}
	j.mu.Lock()
	states, ops := j.log.States(), j.log.Operations()
	for i := range j.memos {
		m, s, op := &j.memos[i], &states[i], &ops[i]
		r := &m.restart
		if !s.Restarting() || s.Phase.Ended() || !r.mine(s) || r.sent {
			continue
		}
		r.sent = true
		calls[i] = &action.Restart{Kind: op.Kind, Action: op.Action, Key: op.Key, Job: turn.JSON, Item: r.input.Item, FromBackup: r.input.FromBackup}
		r.input = nil
		list = append(list, i)
	}
	j.mu.Unlock()
	if len(list) > 0 {
		j.each(j.poller.starts, list, j.poller.life.Done(), func(i int) { j.callRestart(ctx, i, calls[i]) })
	}
}

// callRestart makes one call and keeps what it returned.
func (j *Job) callRestart(ctx context.Context, i int, call *action.Restart) {
	p, r := j.poller, &j.memos[i].restart
	j.mu.Lock()
	instance, intent := r.instance, r.intent
	j.mu.Unlock()
	var again action.Restarted
	err := errLate
	if p.Clock.Since(intent) < restartLimit {
		p.bounded(ctx, restartLimit, func(ctx context.Context) { again, err = p.Homes.Restart(ctx, instance, call) })
	}
	if p.life.Err() != nil && err != nil {
		return // a call that the end of this process cut off is no failed one
	}
	j.mu.Lock()
	defer j.mu.Unlock()
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
