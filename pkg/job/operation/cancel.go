package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

const (
	// CancelLimit bounds the time in which the operations of a job that ends are cancelled.
	CancelLimit = 20 * time.Second
	// forgetLimit bounds the time in which the processes of the operations are let go afterwards.
	forgetLimit = 5 * time.Second
	// cancelsAtOnce bounds the calls under way to one action in one process.
	cancelsAtOnce = 8
)

// MayStillRun ends the text about an operation that was cancelled and is not followed.
const MayStillRun = "it may still be running"

// Canceller cancels the operations of jobs that end without waiting for them. Safe for concurrent
// use.
type Canceller struct {
	Actions *Actions
	Clock   clock.WithTicker
	Log     *slog.Logger
}

// CancelOpen calls the action of each operation that has not ended, and repeats a call that fails
// until CancelLimit has passed. Operations with a recorded intent to cancel are not called again. Each
// operation then counts as Failed, for nothing follows it, with an error that begins with reason; this
// is not recorded. Those that no action acknowledged to cancel are named in the log. job is the Backup
// or Restore. The error is the cause of the end of ctx.
func (c *Canceller) CancelOpen(ctx context.Context, l *Log, job client.Object, reason string) error {
	if l.Ended() {
		return nil
	}
	raw, err := EncodeJob(job, l.list.Job.Kind)
	if err != nil {
		return fmt.Errorf("encode %s: %w", l.list.Job, err)
	}
	results := c.cancelOperations(ctx, l, raw)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.forgetOperations(ctx, l)
	var left []string
	for i := range l.states {
		s, op := &l.states[i], &l.list.Operations[i]
		if s.Phase.Ended() {
			continue
		}
		if !results[i].acknowledged {
			left = append(left, op.Action+" "+op.ID)
		}
		s.endState(&End{Error: ClipTo(reason+", "+results[i].describe(s), maxEventText), Progress: s.Progress}, c.Clock.Now())
	}
	if len(left) > 0 {
		c.Log.WarnContext(ctx, "Failed to cancel operations of a job that ends; they may still be running",
			"kind", l.list.Job.Kind, "name", l.list.Job.Name, "count", len(left), "operations", left[:min(len(left), maxRunning)])
	}
	return nil
}

// cancelOperations calls the actions of the operations that have not ended, and returns what came of it in the
// order of the list.
func (c *Canceller) cancelOperations(ctx context.Context, l *Log, job []byte) []cancelResult {
	ctx, stop := context.WithTimeout(ctx, CancelLimit)
	defer stop()
	results := make([]cancelResult, len(l.states))
	queues := map[string][]int{}
	for i := range l.states {
		if s := &l.states[i]; !s.Phase.Ended() && s.Cancel == nil {
			queue := l.list.Operations[i].QueueName()
			queues[queue] = append(queues[queue], i)
		}
	}
	var group panics.Group
	for _, queue := range queues {
		group.Go(func() error {
			return panics.ForEach(ctx, cancelsAtOnce, len(queue), func(ctx context.Context, n int) error {
				i := queue[n]
				results[i] = c.cancelOperation(ctx, &l.list.Operations[i], job)
				return nil
			})
		})
	}
	_ = group.Wait() // the calls return no error
	return results
}

// cancelResult is what a call to cancel returned; the zero value is that of no call.
type cancelResult struct {
	called, acknowledged bool
	err                  error
}

// describe is the text about an operation that was cancelled and has not ended.
func (r cancelResult) describe(s *State) string {
	switch {
	case !r.called:
		return "it was cancelled at " + s.CancelTime.UTC().Format(time.RFC3339) + " and has not ended; " + MayStillRun
	case isOperationGone(r.err):
		return "the operation is lost: " + r.err.Error()
	case r.err != nil:
		return fmt.Sprintf("the cancel was not acknowledged: %v; %s", r.err, MayStillRun)
	case !r.acknowledged:
		return "the cancel was refused; " + MayStillRun
	}
	return "the cancel was acknowledged; " + MayStillRun
}

// isOperationGone reports that there is no operation to be cancelled any more.
func isOperationGone(err error) bool {
	return errors.Is(err, operationhome.ErrGone) || errors.Is(err, action.ErrUnknownOperation) || errors.Is(err, action.ErrUnknownAction)
}

// forgetOperations lets the processes of the operations that have not ended go.
func (c *Canceller) forgetOperations(ctx context.Context, l *Log) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), forgetLimit)
	defer stop()
	_ = panics.ForEach(ctx, cancelsAtOnce, len(l.states), func(ctx context.Context, i int) error {
		if !l.states[i].Phase.Ended() {
			c.Actions.ForgetOperation(ctx, &l.list.Operations[i])
		}
		return nil
	}) // the calls return no error
}

// cancelOperation cancels one operation.
func (c *Canceller) cancelOperation(ctx context.Context, op *Operation, job []byte) cancelResult {
	r := cancelResult{called: true}
	loop := retry.Loop{Clock: c.Clock, Log: c.Log, Transient: func(err error) bool { return !isOperationGone(err) }, Args: []any{"action", op.Action, "operation", op.ID}}
	r.err = loop.Do(ctx, "cancel an operation", func() (err error) {
		r.acknowledged, err = c.Actions.ActionOf(op).Cancel(ctx, op.ActionOperation(), job, CancelLimit)
		return err
	})
	return r
}
