package call

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// reserve keeps a place among the operations of the restore for the one that a call may begin.
func (c *Caller) reserve(name string, begun *outcome.Begun) (*operation.Reserved, error) {
	op := begun.Of(name)
	place, err := c.operations.Reserve(&op, action.MaxOperationID+action.MaxProcess+len(c.Instance))
	if err != nil {
		err = fmt.Errorf("the call is not made, since it may begin an operation: %w", err)
	}
	return place, err
}

// record notes how a call ended, and returns its error. What it began is durable then, unless ctx
// ends first.
func (c *Caller) record(ctx context.Context, q Request, r *action.RestoreResult, begun outcome.Begun, place *operation.Reserved, failure error) error {
	name := q.Action.Name()
	made := outcome.Call{Action: name}
	if r.OperationID != "" {
		if err := c.list(ctx, q, r, &begun, place); err != nil {
			failure = errors.Join(failure, err)
		} else {
			made.Begun = &begun
		}
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

// list puts the operation that a call began into its place. Where it has none, since it was repeated for an earlier holder in a full list, it is cancelled.
func (c *Caller) list(ctx context.Context, q Request, r *action.RestoreResult, begun *outcome.Begun, place *operation.Reserved) error {
	begun.ID, begun.Process, begun.Time = r.OperationID, r.Process, c.Clock.Now().UTC()
	if r.Process != "" {
		begun.Instance = c.Instance
	}
	op := begun.Of(q.Action.Name())
	if listed, err := place.Begun(&op); !listed {
		return c.refused(q, action.Refuse(ctx, q.Action, r.OperationID, c.Restore.JSON(), err))
	}
	return nil
}
