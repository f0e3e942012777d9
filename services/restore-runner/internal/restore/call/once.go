package call

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// errUnclear is what is known of a call that an earlier holder of the restore was about to
// make.
var errUnclear = errors.New("the runner ended around this call; it is not made again, since it may have begun an operation")

// once makes a call that may begin an operation, once per restore whoever holds it: that it is made
// is durable before it, and how it ended is recorded soon afterwards. A later holder takes the
// recorded answer.
func (c *Caller) once(ctx context.Context, q Request) (result action.RestoreResult, err error) {
	name, node := q.Action.Name(), q.Node
	answer, before := c.History.Calls[node][name]
	switch {
	case answer != nil:
		return answered(answer, q.Object)
	case before, c.History.Blind:
		id, err := q.Object.Identity()
		if err != nil {
			return result, err
		}
		return result, fmt.Errorf("action %s: Execute of %s: %w", name, id, errUnclear)
	}
	if err := c.prepare(ctx, q.Action); err != nil {
		return result, err
	}
	c.Recorder.Call(node, outcome.Call{Action: name})
	if err := c.Recorder.Sync(ctx); err != nil {
		return result, err
	}
	failpoint.Hit("restore-runner/call-announced")
	result, err = q.Action.Execute(ctx, q.Object, q.Stored, c.Restore)
	failpoint.Hit("restore-runner/call-answered")
	switch {
	case err != nil && c.Unsent != nil && c.Unsent(err):
		c.Recorder.Call(node, outcome.Call{Action: name, Unsent: true}) // if the restore ends here, the next holder makes it
		return result, err
	case err != nil && ctx.Err() != nil:
		return result, err // whether it was done is not known
	}
	return result, c.record(q, &result, err)
}

// prepare does what can be done before a call is announced: an announced call that is not made
// costs the object.
func (c *Caller) prepare(ctx context.Context, a action.RestoreItem) error {
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
	return c.confirmed(ctx)
}

// record notes how a call ended, and returns its error.
func (c *Caller) record(q Request, r *action.RestoreResult, failure error) error {
	name := q.Action.Name()
	a := outcome.Answer{Skip: r.Skip, Wait: r.Wait, WaitTimeout: int64(r.WaitTimeout), Operation: r.OperationID}
	if failure == nil && r.Object != nil && r.Object != q.Object {
		raw, err := r.Object.JSON()
		if err != nil {
			failure = fmt.Errorf("action %s: Execute: %w", name, err)
		}
		a.Body = raw
	}
	if failure != nil {
		a = outcome.Answer{Operation: r.OperationID, Error: failure.Error()}
	}
	for _, item := range r.Additional {
		a.Additional = append(a.Additional, outcome.Item{Group: item.Group, Resource: item.Resource, Namespace: item.Namespace, Name: item.Name})
	}
	c.Recorder.Call(q.Node, outcome.Call{Action: name, Answer: &a})
	return failure
}

// answered is the answer of a call that an earlier holder made.
func answered(a *outcome.Answer, given *action.Object) (action.RestoreResult, error) {
	if a.Error != "" {
		return action.RestoreResult{OperationID: a.Operation}, errors.New(a.Error)
	}
	r := action.RestoreResult{Object: given, Skip: a.Skip, Wait: a.Wait, WaitTimeout: time.Duration(a.WaitTimeout), OperationID: a.Operation}
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
