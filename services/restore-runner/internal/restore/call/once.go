package call

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// errUnclear is what is known of a call that an earlier holder of the restore was about to
// make.
var errUnclear = errors.New("the runner ended around this call; it is not made again, since it may have begun an operation")

// errUnrecorded is why an operation is not begun.
var errUnrecorded = errors.New("the call is not made: it may begin an operation, which could not be followed since the location cannot be written")

// callOnce makes a call that may begin an operation, once per restore even after a takeover: the intent
// is durable before the call, and how it ended is recorded soon afterwards. A later holder takes
// the recorded answer; where there is none it repeats a call that carries an idempotency key, and
// no other. Such a call is also repeated when its process dies. An operation that was begun is
// durable when once returns, and among those of the restore, whatever the outcome of the object. In a
// restore with operation.MaxOperations no further call is made.
func (c *Caller) callOnce(ctx context.Context, q Request, kind string) (result action.RestoreResult, err error) {
	name, node := q.Action.Name(), q.Node
	starter, repeatable := q.Action.(action.RestoreStarter)
	answer, announced := c.History.Calls[node][name]
	switch {
	case answer != nil:
		return recordedAnswer(answer, q.Object)
	case (announced || c.History.NoHistory) && !repeatable:
		return result, c.refusalError(q, errUnclear)
	case c.Unrecorded && repeatable:
		return result, c.refusalError(q, errUnrecorded)
	}
	if err := c.prepareCall(ctx, q.Action); err != nil {
		return result, err
	}
	begun := outcome.BegunOperation{Kind: kind, Item: c.itemResource(q)}
	if repeatable {
		begun.Key = c.idempotencyKey(q)
	}
	if err := c.reserveOperation(announced); err != nil {
		return result, c.refusalError(q, err)
	}
	defer func() {
		if result.OperationID == "" {
			c.operations.ReleaseOperation()
		}
	}()
	if !announced {
		c.Recorder.Call(node, outcome.Call{Action: name})
		if err := cmp.Or(c.Recorder.Sync(ctx), ctx.Err()); err != nil {
			c.Recorder.Call(node, outcome.Call{Action: name, NotSent: true}) // the next holder makes it
			return result, err
		}
	}
	failpoint.Hit("restore-runner/call-announced")
	if repeatable {
		keyedCall := q
		keyedCall.Action = &keyedStarter{q.Action, starter, begun.Key}
		result, err = c.callRetryable(ctx, keyedCall)
	} else {
		result, err = q.Action.Execute(ctx, q.Object, q.Stored, c.Restore)
	}
	failpoint.Hit("restore-runner/call-answered")
	switch {
	case err != nil && c.IsNotSent != nil && c.IsNotSent(err):
		c.Recorder.Call(node, outcome.Call{Action: name, NotSent: true}) // if the restore ends here, the next holder makes it
		return result, err
	case err != nil && ctx.Err() != nil && result.OperationID == "":
		return result, err // whether it was done is not known
	}
	return result, c.recordResult(ctx, q, &result, begun, err)
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
func (c *Caller) idempotencyKey(q Request) string {
	item := c.itemResource(q)
	item.Namespace, item.Name = c.Plan.Source(q.Node), c.Plan.Name(q.Node)
	return operation.Key(string(c.Restore.Restore().UID), q.Action.Name(), &item)
}

// itemResource names the object of a call in the cluster restored to.
func (c *Caller) itemResource(q Request) operation.Resource {
	resource, target := c.Plan.Kind(q.Node).GroupResource(), c.Target(q.Node)
	return operation.Resource{Group: resource.Group, Resource: resource.Resource, Namespace: target.Namespace, Name: target.Name}
}

// refusalError is the error of a call that is not made.
func (c *Caller) refusalError(q Request, why error) error {
	id, err := q.Object.Identity()
	if err != nil {
		return err
	}
	return fmt.Errorf("action %s: Execute of %s: %w", q.Action.Name(), id, why)
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
func recordedAnswer(a *outcome.Answer, given *action.Object) (action.RestoreResult, error) {
	if a.Error != "" {
		return action.RestoreResult{}, errors.New(a.Error)
	}
	r := action.RestoreResult{Object: given, Skip: a.Skip, Wait: a.Wait, WaitTimeout: time.Duration(a.WaitTimeout)}
	if a.Body != nil {
		r.Object = action.FromJSON(a.Body)
	}
	for _, i := range a.Additional {
		r.Additional = append(r.Additional, action.Item{
			GroupResource: schema.GroupResource{Group: i.Group, Resource: i.Resource}, Namespace: i.Namespace, Name: i.Name,
		})
	}
	return r, nil
}
