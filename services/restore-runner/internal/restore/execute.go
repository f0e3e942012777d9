package restore

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
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/stop"
)

// errCallUnclear is what is known of a call that an earlier holder of the restore was about to
// make.
var errCallUnclear = errors.New("the runner ended around this call; it is not made again, since it may have begun an operation")

// once makes a call that may begin an operation, once per restore whoever holds it: that it is made
// is durable before it, and how it ended is recorded soon afterwards. A later holder takes the
// recorded answer.
func (t *chainRun) once(ctx context.Context, b *bound) (result action.RestoreResult, err error) {
	name, node := b.Action.Name(), t.it.Node
	answer, before := t.History.Calls[node][name]
	switch {
	case answer != nil:
		return t.answered(answer)
	case before, t.History.Blind:
		id, err := t.object.Identity()
		if err != nil {
			return result, err
		}
		return result, fmt.Errorf("action %s: Execute of %s: %w", name, id, errCallUnclear)
	}
	if err := t.prepare(ctx, b); err != nil {
		return result, err
	}
	t.Recorder.Call(node, outcome.Call{Action: name})
	if err := t.Recorder.Sync(ctx); err != nil {
		return result, err
	}
	failpoint.Hit("restore-runner/call-announced")
	result, err = b.Action.Execute(ctx, t.object, t.stored, t.Object)
	failpoint.Hit("restore-runner/call-answered")
	switch {
	case err != nil && t.Unsent != nil && t.Unsent(err):
		t.Recorder.Call(node, outcome.Call{Action: name, Unsent: true}) // if the restore ends here, the next holder makes it
		return result, err
	case err != nil && ctx.Err() != nil:
		return result, err // whether it was done is not known
	}
	return result, t.recorded(name, &result, err)
}

// prepare does what can be done before a call is announced: an announced call that is not made
// costs the object.
func (t *chainRun) prepare(ctx context.Context, b *bound) error {
	if p, ok := b.Action.(action.Preparer); ok {
		preparing, done := stop.Signal(t.Stop).Context(ctx)
		err := p.Prepare(preparing)
		done()
		if stop.Signal(t.Stop).Requested() {
			return dispatch.ErrStopped
		}
		if err != nil {
			return err
		}
	}
	return t.confirmed(ctx)
}

// recorded notes how a call ended, and returns its error.
func (t *chainRun) recorded(name string, r *action.RestoreResult, failure error) error {
	a := outcome.Answer{Skip: r.Skip, Wait: r.Wait, WaitTimeout: int64(r.WaitTimeout), Operation: r.OperationID}
	if failure == nil && r.Object != nil && r.Object != t.object {
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
	t.Recorder.Call(t.it.Node, outcome.Call{Action: name, Answer: &a})
	return failure
}

// answered is the answer of a call that an earlier holder made.
func (t *chainRun) answered(a *outcome.Answer) (action.RestoreResult, error) {
	if a.Error != "" {
		return action.RestoreResult{OperationID: a.Operation}, errors.New(a.Error)
	}
	r := action.RestoreResult{Object: t.object, Skip: a.Skip, Wait: a.Wait, WaitTimeout: time.Duration(a.WaitTimeout), OperationID: a.Operation}
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
