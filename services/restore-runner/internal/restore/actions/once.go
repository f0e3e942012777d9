package actions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// errUnrecorded is why an operation is not begun.
var errUnrecorded = errors.New("the call is not made: it may begin an operation, which could not be followed since the location cannot be written")

// callOnce makes a call that may begin an operation, once per restore even after a takeover: it is
// announced before, and its answer is recorded soon afterwards. An operation that was begun is durable
// when callOnce returns, and among those of the restore, whatever the outcome of the object.
func (c *Caller) callOnce(ctx context.Context, q CallRequest, kind string) (result action.RestoreResult, err error) {
	name, node := q.Action.Name(), q.Node
	starter, repeatable := q.Action.(action.RestoreStarter)
	answer, announced := c.History.Calls[node][name]
	switch {
	case answer != nil:
		return recordedAnswer(answer, q.Object)
	case (announced || c.History.NoHistory) && !repeatable:
		return result, c.refusalError(q, effect.ErrUnclear)
	case c.Unrecorded && repeatable:
		return result, c.refusalError(q, errUnrecorded)
	}
	if err := c.prepareCall(ctx, q.Action); err != nil {
		return result, err
	}
	begun, called := operation.Operation{Action: name, Kind: kind, Item: c.itemResource(q)}, q
	if repeatable {
		begun.Key = c.idempotencyKey(q)
		called.Action = &keyedStarter{q.Action, starter, begun.Key}
	}
	result, ended, err := effect.Once(ctx, c.calls, &effect.Call[action.RestoreResult]{
		Name: callName(q), Announced: announced, Repeatable: repeatable,
		Announce: func(ctx context.Context) error {
			c.Recorder.Call(node, outcome.Call{Action: name})
			return c.Recorder.Sync(ctx)
		},
		Withdraw: func() { c.Recorder.Call(node, outcome.Call{Action: name, NotSent: true}) },
		Make: func(ctx context.Context) (action.RestoreResult, error) {
			failpoint.Hit("restore-runner/call-announced")
			defer failpoint.Hit("restore-runner/call-answered")
			if repeatable {
				return c.callAction(ctx, called)
			}
			return q.Action.Execute(ctx, q.Object, q.Stored, c.Restore)
		},
		Began: func(r *action.RestoreResult) bool { return r.OperationID != "" },
	})
	if !ended {
		return result, err
	}
	return result, c.recordResult(ctx, q, &result, &begun, err)
}

// keyedStarter calls a starter with its key.
type keyedStarter struct {
	action.RestoreItem
	starter action.RestoreStarter
	key     string
}

// Execute implements action.RestoreItem.
func (k *keyedStarter) Execute(ctx context.Context, object, fromBackup *action.Object, restore *action.Restore) (action.RestoreResult, error) {
	return k.starter.Start(ctx, object, fromBackup, restore, k.key)
}

// idempotencyKey is the idempotency key of a call. The object counts as it is named in the backup: in the
// cluster restored to two of them may have one name.
func (c *Caller) idempotencyKey(q CallRequest) string {
	item := c.itemResource(q)
	item.Namespace, item.Name = c.Plan.Source(q.Node), c.Plan.Name(q.Node)
	return operation.Key(string(c.Restore.Restore().UID), q.Action.Name(), &item)
}

// itemResource names the object of a call in the cluster restored to.
func (c *Caller) itemResource(q CallRequest) operation.Resource {
	resource, target := c.Plan.Kind(q.Node).GroupResource(), c.Target(q.Node)
	return operation.Resource{Group: resource.Group, Resource: resource.Resource, Namespace: target.Namespace, Name: target.Name}
}

// callName names a call in errors.
func callName(q CallRequest) string {
	id, err := q.Object.Identity()
	if err != nil {
		return fmt.Sprintf("action %s: Execute: %v", q.Action.Name(), err)
	}
	return fmt.Sprintf("action %s: Execute of %s", q.Action.Name(), id)
}

// refusalError is the error of a call that is not made.
func (c *Caller) refusalError(q CallRequest, why error) error {
	return fmt.Errorf("%s: %w", callName(q), why)
}

// prepareCall does what can be done before a call is announced: an announced call that is not made
// costs the object.
func (c *Caller) prepareCall(ctx context.Context, a action.RestoreItem) error {
	if p, ok := a.(action.Preparer); ok {
		preparing, done := c.Stop.Context(ctx)
		err := p.Prepare(preparing)
		done()
		if c.Stop.Requested() {
			return dispatch.ErrStopped
		}
		if err != nil {
			return err
		}
	}
	return c.confirmClaim(ctx)
}

// recordedAnswer is the answer of a call that an earlier holder made.
func recordedAnswer(a *outcome.Answer, given *action.Object) (r action.RestoreResult, err error) {
	if r.Object, err = a.Object(given); err != nil {
		return action.RestoreResult{}, err
	}
	r.Skip, r.Wait, r.WaitTimeout, r.Additional = a.Skip, a.Wait, time.Duration(a.WaitTimeout), effect.Items(a.Additional)
	return r, nil
}

// recordResult notes how a call ended, and returns its error. What it began is durable then, unless ctx
// ends first.
func (c *Caller) recordResult(ctx context.Context, q CallRequest, r *action.RestoreResult, begun *operation.Operation, failure error) error {
	made := outcome.Call{Action: q.Action.Name()}
	if r.OperationID != "" {
		begun.ID, begun.Created = r.OperationID, c.Clock.Now().UTC()
		if r.Process != "" {
			begun.Home = &operation.Home{Instance: c.Instance, Process: r.Process}
		}
		made.Begun = begun
	}
	answer, failure := effect.NewAnswer(made.Action, q.Object, r.Object, r.Additional, failure)
	made.Answer = &outcome.Answer{Answer: answer, Skip: r.Skip, Wait: r.Wait, WaitTimeout: int64(r.WaitTimeout)}
	c.Recorder.Call(q.Node, made)
	if made.Begun != nil {
		if err := c.Recorder.Sync(ctx); err != nil && failure == nil {
			return err
		}
	}
	return failure
}
