package acting

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// ErrUnclear is what is known of a call that an earlier holder of the backup was about to make.
var ErrUnclear = errors.New("the runner ended around this call; it is not made again, since it may have begun an operation")

// objectTurn is an object on its way through its actions, and the chain.Host for it.
type objectTurn struct {
	actor   *objectProcessor
	subject *processedObject
}

// Execute implements chain.Host.
func (t *objectTurn) Execute(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	begins, ok := a.(action.BackupOperations)
	_, starts := a.(action.BackupStarter)
	switch {
	case ok && !t.actor.pool.Again:
		return t.callOnce(ctx, a, begins.OperationKind(), o, b)
	case starts:
		return t.repeatChanges(ctx, a, o)
	}
	return t.actor.pool.callRetryable(ctx, a, o, b)
}

// callOnce makes a call that may begin an operation, each once per backup, however often its holder
// changes: that it is made is durable before it, and how it ended is in the next record of any
// kind. A later holder takes the recorded answer; where none is recorded it repeats a call that
// carries an idempotency key, and no other. Such a call is also repeated when its process dies. An
// operation that was begun is among those of the backup, whatever becomes of the object; the answer
// does not name it. In a backup with operation.MaxOperations no further call is made, and an
// operation that was begun with an answer that no record takes is cancelled.
func (t *objectTurn) callOnce(ctx context.Context, a action.BackupItem, kind string, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	p := t.actor.pool
	call := checkpoint.Call{Action: a.Name(), Object: recordObject(&t.subject.SpooledItem)}
	starter, repeatable := a.(action.BackupStarter)
	record, announced := p.Past.Begun(&call)
	if announced && (record != "" || !repeatable) {
		return t.recordedResult(ctx, record, &call, o)
	}
	if err := p.prepareCall(ctx, a); err != nil {
		return action.BackupResult{}, err
	}
	begun := &checkpoint.BegunOperation{Kind: kind, Resource: t.subject.Resource}
	if repeatable {
		begun.Key = operation.Key(string(b.Backup().UID), a.Name(), &operation.Resource{
			Group: t.subject.Group, Resource: t.subject.Resource, Namespace: t.subject.Namespace, Name: t.subject.Name})
	}
	if err := p.reserveOperation(announced); err != nil {
		return action.BackupResult{}, t.callError(&call, err)
	}
	listed := false
	defer func() {
		if !listed {
			p.Operations.ReleaseOperation()
		}
	}()
	if !announced {
		if err := p.Intents.Call(t.actor.out.Uploads(), &call); err != nil {
			return action.BackupResult{}, &fatalError{err}
		}
	}
	called := a
	if repeatable {
		called = &keyedStarter{a, starter, begun.Key}
	}
	failpoint.Hit("backup-runner/call-announced")
	result, err := p.executeCall(ctx, called, o, b)
	for range retries {
		if err == nil || !repeatable || !p.isProcessDeath(ctx, err) {
			break
		}
		result, err = p.retryAlone(ctx, called, o, b)
	}
	failpoint.Hit("backup-runner/call-answered")
	ending := ctx.Err() != nil || p.Stop.Requested()
	var broken *fatalError
	switch {
	case errors.As(err, &broken): // the claim was not confirmed
		p.Intents.End(&checkpoint.Outcome{Call: call, NotSent: true})
		return result, err // the next holder makes it
	case err != nil && ending && p.IsNotSent != nil && p.IsNotSent(err):
		p.Intents.End(&checkpoint.Outcome{Call: call, NotSent: true})
		return result, &fatalError{plan.ErrStopped} // the next holder makes it
	case err != nil && ctx.Err() != nil && result.OperationID == "":
		return result, err // nothing is known of it
	}
	out, err := callOutcome(&call, o, &result, err)
	if repeatable && err == nil {
		out.Patch, err = patchOf(&call, o, result.Object)
	}
	if result.OperationID != "" {
		listed = true
		out.Begun = p.completeBegun(begun, &result)
		if err = p.countPostItems(out.Begun, err); err == nil {
			err = refuseTooLarge(&out)
		}
	}
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		err = t.refuseAnswer(a, b, &out, result.OperationID, refused)
	}
	p.Intents.End(&out)
	result.OperationID = ""
	return result, err
}

// keyedStarter calls a starter with its key.
type keyedStarter struct {
	action.BackupItem
	starter action.BackupStarter
	key     string
}

// Execute implements action.BackupItem.
func (k *keyedStarter) Execute(ctx context.Context, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	return k.starter.Start(ctx, o, b, k.key)
}

func itemsOf(items []action.Item) []checkpoint.Item {
	var out []checkpoint.Item
	for _, item := range items {
		out = append(out, checkpoint.Item{Group: item.Group, Resource: item.Resource, Namespace: item.Namespace, Name: item.Name})
	}
	return out
}

// prepareCall does what can be done before the call is announced: an announced call that is not made
// costs the object.
func (p *Pool) prepareCall(ctx context.Context, a action.BackupItem) error {
	if preparer, ok := a.(action.Preparer); ok {
		if err := preparer.Prepare(ctx); err != nil && !p.Stop.Requested() {
			return err
		}
	}
	if p.Stop.Requested() {
		return &fatalError{plan.ErrStopped}
	}
	return p.confirmClaim(ctx)
}

// callOutcome returns how a call ended, and its error.
func callOutcome(call *checkpoint.Call, given *action.Object, r *action.BackupResult, failure error) (checkpoint.Outcome, error) {
	out := checkpoint.Outcome{Call: *call, Operation: r.OperationID}
	switch {
	case failure != nil:
		out.Error = failure.Error()
	case r.Object != nil && r.Object != given:
		raw, err := r.Object.JSON()
		if err != nil {
			failure = fmt.Errorf("action %s: Execute: %w", call.Action, err)
			out.Error = failure.Error()
		}
		out.Body = raw
	}
	if failure == nil {
		out.Additional = itemsOf(r.Additional)
		if err := history.CheckItems(out.Additional); err != nil {
			failure = &refusedError{err}
		}
	}
	return out, failure
}

// recordedResult returns what an earlier holder recorded of a call.
func (t *objectTurn) recordedResult(ctx context.Context, record string, call *checkpoint.Call, given *action.Object) (r action.BackupResult, err error) {
	err = t.callError(call, ErrUnclear)
	if record == "" {
		return r, err
	}
	out, failed := t.actor.pool.outcomeIn(ctx, record, call)
	if failed != nil {
		return r, failed
	}
	if out == nil {
		return r, err
	}
	return recordedAnswer(out, given)
}

// outcomeIn returns the outcome of a call that a record has; nil where it has none. An error ends
// the job.
func (p *Pool) outcomeIn(ctx context.Context, record string, call *checkpoint.Call) (out *checkpoint.Outcome, err error) {
	rec, err := p.ReadRecord(ctx, record)
	if err != nil {
		return nil, &fatalError{fmt.Errorf("read how a call ended: %w", err)}
	}
	for i := range rec.Outcomes {
		if rec.Outcomes[i].Call == *call {
			out = &rec.Outcomes[i]
		}
	}
	return out, nil
}

// recordedAnswer is the answer of a recorded call.
func recordedAnswer(o *checkpoint.Outcome, given *action.Object) (action.BackupResult, error) {
	if o.Error != "" {
		return action.BackupResult{}, errors.New(o.Error)
	}
	r := action.BackupResult{Object: given}
	if o.Body != nil {
		r.Object = action.FromJSON(o.Body)
	}
	for _, i := range o.Additional {
		r.Additional = append(r.Additional, action.Item{GroupResource: schema.GroupResource{Group: i.Group, Resource: i.Resource}, Namespace: i.Namespace, Name: i.Name})
	}
	return r, nil
}

// executeCall makes a call beside others.
func (p *Pool) executeCall(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	if err := p.confirmClaim(ctx); err != nil {
		return action.BackupResult{}, err
	}
	return actionset.Execute(ctx, a, o, b)
}
