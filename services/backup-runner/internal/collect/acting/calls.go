package acting

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// objectTurn is an object on its way through its actions, and the actionset.Host for it.
type objectTurn struct {
	actor   *objectProcessor
	subject *processedObject
}

// Execute implements actionset.Host.
func (t *objectTurn) Execute(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	begins, ok := a.(action.BackupOperations)
	_, starts := a.(action.BackupStarter)
	switch {
	case ok && !t.actor.pool.Again:
		r, err := t.callOnce(ctx, a, begins.OperationKind(), o, b)
		t.subject.notes = append(t.subject.notes, r.Notes...)
		return r, err
	case starts:
		return t.repeatChanges(ctx, a, o)
	}
	return t.actor.pool.callRetryable(ctx, a, o, b)
}

// callOnce makes a call that may begin an operation, each once per backup, however often its holder
// changes: it is announced before, and its answer is in the next record of any kind. The operation is
// among those of the backup, whatever becomes of the object; the result does not name it. Where the
// answer is one that no record takes, the operation is cancelled.
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
	begun := operation.Operation{Action: a.Name(), Kind: kind, Item: operation.Resource{
		Group: t.subject.Group, Resource: t.subject.Resource, Namespace: t.subject.Namespace, Name: t.subject.Name}}
	called := a
	if repeatable {
		begun.Key = operation.Key(string(b.Backup().UID), a.Name(), &begun.Item)
		called = &keyedStarter{a, starter, begun.Key}
	}
	result, ended, err := effect.Once(ctx, p.caller, &effect.Call[action.BackupResult]{
		Name: t.callName(&call), Announced: announced, Repeatable: repeatable,
		Announce: func(context.Context) error { return fatalOf(p.Intents.Call(t.actor.out.Uploads(), &call)) },
		Withdraw: func() { p.Intents.End(&checkpoint.Outcome{Call: call, NotSent: true}) },
		Make: func(ctx context.Context) (action.BackupResult, error) {
			failpoint.Hit("backup-runner/call-announced")
			defer failpoint.Hit("backup-runner/call-answered")
			return p.executeCall(ctx, called, o, b)
		},
		Began: func(r *action.BackupResult) bool { return r.OperationID != "" },
	})
	if !ended {
		return result, p.stopError(err)
	}
	return t.recordAnswer(a, b, o, &checkpoint.Outcome{Call: call}, &begun, result, err)
}

// recordAnswer keeps the answer of a call for the next record, and returns what of it counts.
func (t *objectTurn) recordAnswer(a action.BackupItem, b *action.Backup, given *action.Object, out *checkpoint.Outcome,
	begun *operation.Operation, result action.BackupResult, err error,
) (action.BackupResult, error) {
	p := t.actor.pool
	out.Answer, err = effect.NewAnswer(a.Name(), given, result.Object, result.Additional, err)
	if err == nil {
		out.Notes, err = result.Notes, checkItems(out.Additional)
	}
	if begun.Key != "" && err == nil {
		out.Patch, err = patchOf(&out.Call, given, result.Object)
	}
	if result.OperationID != "" {
		out.Begun = begun
		p.completeBegun(begun, &result)
		if err = p.countPostItems(begun, err); err == nil {
			err = refuseTooLarge(begun)
		}
	}
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		err = t.refuseAnswer(a, b, out, refused)
	}
	p.Intents.End(out)
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

// recordedResult returns what an earlier holder recorded of a call.
func (t *objectTurn) recordedResult(ctx context.Context, record string, call *checkpoint.Call, given *action.Object) (r action.BackupResult, err error) {
	err = t.callError(call, effect.ErrUnclear)
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
	r.Object, err = out.Answer.Object(given)
	r.Additional, r.Notes = effect.Items(out.Additional), out.Notes
	return r, err
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

// executeCall makes a call beside others.
func (p *Pool) executeCall(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	if err := p.confirmClaim(ctx); err != nil {
		return action.BackupResult{}, err
	}
	return actionset.Execute(ctx, a, o, b)
}
