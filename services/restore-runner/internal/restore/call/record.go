package call

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// reserveOperation counts the operation that a call may begin. One that an earlier holder announced has
// its place.
func (c *Caller) reserveOperation(announced bool) error {
	if announced {
		c.operations.AddOperation(0)
		return nil
	}
	if err := c.operations.ReserveOperation(); err != nil {
		return fmt.Errorf("the call is not made, since it may begin an operation: %w", err)
	}
	return nil
}

// recordResult notes how a call ended, and returns its error. What it began is durable then, unless ctx
// ends first.
func (c *Caller) recordResult(ctx context.Context, q Request, r *action.RestoreResult, begun outcome.BegunOperation, failure error) error {
	name := q.Action.Name()
	made := outcome.Call{Action: name}
	if r.OperationID != "" {
		made.Begun = c.begun(&begun, r)
	}
	a := outcome.Answer{Skip: r.Skip, Wait: r.Wait, WaitTimeout: int64(r.WaitTimeout)}
	if failure == nil && r.Object != nil && r.Object != q.Object {
		raw, err := r.Object.JSON()
		if err != nil {
			failure = fmt.Errorf("action %s: Execute: %w", name, err)
		}
		a.Body = raw
	}
	if failure != nil {
		a = outcome.Answer{Error: failure.Error()}
	}
	for _, item := range r.Additional {
		a.Additional = append(a.Additional, outcome.Item{Group: item.Group, Resource: item.Resource, Namespace: item.Namespace, Name: item.Name})
	}
	made.Answer = &a
	c.Recorder.Call(q.Node, made)
	if made.Begun != nil {
		if err := c.Recorder.Sync(ctx); err != nil && failure == nil {
			return err
		}
	}
	return failure
}

// begun completes what is recorded of an operation by the answer that names it.
func (c *Caller) begun(b *outcome.BegunOperation, r *action.RestoreResult) *outcome.BegunOperation {
	b.ID, b.Process, b.Time = r.OperationID, r.Process, c.Clock.Now().UTC()
	if r.Process != "" {
		b.Instance = c.Instance
	}
	return b
}
