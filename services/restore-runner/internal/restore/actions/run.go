package actions

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// objectRun is one object on its way through its actions. One goroutine uses it.
type objectRun struct {
	chains  *Chains
	o       *object.Object
	actions []boundAction
	state   *PendingState
	waits   bool           // the object may wait for others
	object  *action.Object // as the actions so far left it
	stored  *action.Object // as it was backed up
}

// Follow puts an object, whose state is as it was kept or is new, to its next actions, until one of
// them makes it wait or there is no further one. With waits it may wait for others. over reports
// that the object has its outcome; without it and without a wait its body is what the actions left.
func (c *Chains) Follow(ctx context.Context, o *object.Object, state *PendingState, waits bool) (wait *dispatch.Wait, over bool) {
	actions := c.byKind[c.Plan.Kind(o.Node)]
	if actions == nil {
		return nil, false
	}
	r := &objectRun{chains: c, o: o, actions: actions, state: state, waits: waits}
	return r.followActions(ctx)
}

// followActions puts the object to the next actions, until one of them makes it wait or there is no
// further one. over reports that the object has its outcome.
func (r *objectRun) followActions(ctx context.Context) (wait *dispatch.Wait, over bool) {
	if err := r.beginObject(); err != nil {
		r.chains.Finisher.Fail(ctx, r.state.Entry, r.o.Node, err)
		return nil, true
	}
	if wait := r.concludeWait(ctx); wait != nil {
		return r.suspendObject(ctx, wait)
	}
	for r.state.Next < len(r.actions) {
		b := &r.actions[r.state.Next]
		r.state.Next++
		result, err := r.callAction(ctx, b)
		switch {
		case err != nil:
			r.chains.Finisher.Fail(ctx, r.state.Entry, r.o.Node, err)
			return nil, true
		case result.Skip:
			r.state.Entry.LeftOut()
			r.state.Entry.Info("not restored: action " + b.Action.Name() + " leaves it out")
			r.chains.Finisher.Done(ctx, r.state.Entry, r.o.Node, apply.Result{Action: apply.Skipped}, nil, nil)
			return nil, true
		}
		if result.Object != nil {
			r.object = result.Object
		}
		if wait := r.awaitAdditional(ctx, b, &result); wait != nil {
			return r.suspendObject(ctx, wait)
		}
	}
	if err := r.moveObject(ctx); err != nil {
		r.chains.Finisher.Fail(ctx, r.state.Entry, r.o.Node, err)
		return nil, true
	}
	r.state.Object = r.object
	return nil, false
}

// beginObject takes up the object where it was left.
func (r *objectRun) beginObject() error {
	r.stored, r.object = action.FromJSON(r.o.Raw), action.FromContent(r.o.Body)
	if r.state.Wait == nil {
		return nil
	}
	raw, err := r.state.Read()
	r.object = action.FromJSON(raw)
	return err
}

// suspendObject keeps the object until what it waits for has come.
func (r *objectRun) suspendObject(ctx context.Context, wait *dispatch.Wait) (_ *dispatch.Wait, over bool) {
	raw, err := r.object.JSON()
	if err == nil {
		r.state.Wait = wait
		err = r.chains.Pending.Put(r.o.Node, r.state, raw)
	}
	if err != nil {
		r.chains.Finisher.Fail(ctx, r.state.Entry, r.o.Node, err)
		return nil, true
	}
	return wait, false
}

// callAction calls an action with the object, if it applies to it. Otherwise the result is zero.
func (r *objectRun) callAction(ctx context.Context, b *boundAction) (result action.RestoreResult, err error) {
	if wants, err := r.isWanted(ctx, b); err != nil || !wants {
		return result, err
	}
	if _, safe := b.Action.(action.DryRunSafe); r.chains.DryRun && !safe {
		r.state.Entry.Unknown("action " + b.Action.Name() + " is not called in a dry run: it may change, skip or add objects")
		return result, nil
	}
	dispatch.RunOutsideLimit(ctx, func() {
		result, err = r.chains.Caller.Execute(ctx, CallRequest{Action: b.Action, Node: r.o.Node, Object: r.object, Stored: r.stored})
	})
	if result.OperationID != "" {
		r.reportUnfollowed(b, result.OperationID)
	}
	if err != nil {
		return result, err
	}
	if !result.Skip && result.Object != r.object {
		err = r.chains.Loader.Check(r.o, "action "+b.Action.Name()+": Execute", result.Object, r.requiredName())
	}
	return result, err
}

// reportUnfollowed reports an operation that the restore will not wait for.
func (r *objectRun) reportUnfollowed(b *boundAction, operation string) {
	why := ""
	if _, announced := b.Action.(action.RestoreOperations); !announced {
		why = "the action is none that begins operations"
	} else if r.chains.Caller.Unrecorded {
		why = "the location cannot be written"
	}
	if why != "" {
		r.state.Entry.Error(fmt.Sprintf("action %s: Execute began operation %q, which is not followed: %s", b.Action.Name(), operation, why))
	}
}

// isWanted reports whether the action's selector matches the object as it is now, in its target
// namespace (Velero 1.18).
func (r *objectRun) isWanted(ctx context.Context, b *boundAction) (bool, error) {
	if !b.Namespace(r.chains.Plan.Target(r.o.Node)) {
		return false, nil
	}
	content, err := r.object.Content()
	if err != nil {
		return false, err
	}
	if !b.Labels(object.LabelsOf(content)) {
		return false, nil
	}
	wants, err := b.Accepts(ctx, r.object)
	if err != nil {
		return false, fmt.Errorf("action %s: AppliesTo: %w", b.Action.Name(), err)
	}
	return wants, nil
}
