package poll

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// pollDueOperations calls Progress of the operations that are due, longest overdue first, and waits for the
// answers as long as the window is open.
func (j *Job) pollDueOperations(ctx context.Context, turn Input) {
	list := j.dueOperations(turn)
	if len(list) == 0 {
		return
	}
	p, ops := j.poller, j.log.Operations()
	closed := make(chan struct{})
	defer close(closed)
	answered := j.eachWithSlot(p.progress, list, closed, func(i int) { j.pollOperation(ctx, i, &ops[i], turn.JSON) })
	timer := p.Clock.NewTimer(window)
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// dueOperations lists the operations to ask about.
func (j *Job) dueOperations(turn Input) []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.poller.Clock.Now()
	states, ops := j.log.States(), j.log.Operations()
	var list []int
	for i := range j.memos {
		m := &j.memos[i]
		last := m.asked.Before(j.operationDeadline(&ops[i], turn)) && !now.Before(j.operationDeadline(&ops[i], turn)) // before its timeout counts
		waits := m.calling || m.answer != nil || m.ended != nil || now.Before(m.due) && !last
		if !waits && !states[i].Phase.Ended() {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return j.memos[a].due.Compare(j.memos[b].due) })
	return list
}

// pollOperation makes one call and keeps the answer.
func (j *Job) pollOperation(ctx context.Context, i int, op *operation.Operation, job []byte) {
	m := &j.memos[i]
	j.mu.Lock()
	m.calling = true
	j.mu.Unlock()
	began := j.poller.Clock.Now()
	a := progressAnswer{began: began}
	j.poller.callBounded(ctx, callLimit, func(ctx context.Context) {
		a.progress, a.err = j.poller.Actions.ActionOf(op).Progress(ctx, op.ActionOperation(), job)
	})
	j.poller.Metrics.Polled(resultLabel(&a), j.poller.Clock.Since(began))
	j.mu.Lock()
	defer j.mu.Unlock()
	m.calling = false
	if j.poller.life.Err() == nil || a.err == nil { // else the end of this process cut it off
		m.answer = &a
	}
}

func resultLabel(a *progressAnswer) string {
	switch {
	case errors.Is(a.err, operationhome.ErrGone), errors.Is(a.err, action.ErrUnknownOperation), errors.Is(a.err, action.ErrUnknownAction):
		return "unknown"
	case a.err != nil:
		return "failed"
	case a.progress.Done:
		return "ended"
	}
	return "running"
}
