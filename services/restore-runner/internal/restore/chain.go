package restore

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/decoded"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/parked"
)

type bound = action.Bound[action.RestoreItem]

// bind finds the actions of each kind. Objects of kinds without any never meet one.
func (r *run) bind() {
	r.retrying = make(chan struct{}, 1)
	if len(r.Actions) == 0 {
		return
	}
	r.chains = map[*plan.Kind][]bound{}
	kinds := r.Plan.Kinds()
	for i := range kinds {
		for _, b := range r.Actions {
			if b.Resource(kinds[i].GroupResource()) {
				r.chains[&kinds[i]] = append(r.chains[&kinds[i]], b)
			}
		}
	}
}

// chainRun is an object on its way through the actions.
type chainRun struct {
	*run
	it      *object.Object
	actions []bound
	parked  *parked.State
	parks   bool           // the object may wait for others
	object  *action.Object // as the actions so far left it
	stored  *action.Object // as it was backed up
}

// follow puts the object to the next actions, until one of them makes it wait or there is no
// further one. over reports that the object has its outcome.
func (t *chainRun) follow(ctx context.Context) (wait *dispatch.Wait, over bool) {
	if err := t.begin(); err != nil {
		t.settler.Fail(ctx, t.parked.Entry, t.it.Node, err)
		return nil, true
	}
	if wait := t.comeBack(ctx); wait != nil {
		return t.rest(ctx, wait)
	}
	for t.parked.Next < len(t.actions) {
		b := &t.actions[t.parked.Next]
		t.parked.Next++
		result, err := t.put(ctx, b)
		switch {
		case err != nil:
			t.settler.Fail(ctx, t.parked.Entry, t.it.Node, err)
			return nil, true
		case result.Skip:
			t.parked.Entry.Info("not restored: action " + b.Action.Name() + " leaves it out")
			t.settler.Done(ctx, t.parked.Entry, t.it.Node, apply.Result{Action: apply.Skipped}, nil, nil)
			return nil, true
		}
		if result.Object != nil {
			t.object = result.Object
		}
		if wait := t.await(ctx, b, &result); wait != nil {
			return t.rest(ctx, wait)
		}
	}
	if err := t.loader.Replace(t.it, t.object); err != nil {
		t.settler.Fail(ctx, t.parked.Entry, t.it.Node, err)
		return nil, true
	}
	return nil, false
}

// begin takes up the object where it was left.
func (t *chainRun) begin() error {
	t.stored, t.object = action.FromJSON(t.it.Raw), action.FromContent(t.it.Body)
	if t.parked.Wait == nil {
		return nil
	}
	raw, err := t.parked.Read()
	t.object = action.FromJSON(raw)
	return err
}

// rest lays the object aside.
func (t *chainRun) rest(ctx context.Context, wait *dispatch.Wait) (_ *dispatch.Wait, over bool) {
	raw, err := t.object.JSON()
	if err == nil {
		t.parked.Wait = wait
		err = t.waiting.Put(t.it.Node, t.parked, raw)
	}
	if err != nil {
		t.settler.Fail(ctx, t.parked.Entry, t.it.Node, err)
		return nil, true
	}
	return wait, false
}

// put asks an action about the object, if it wants it. A zero result is that of one that does not.
func (t *chainRun) put(ctx context.Context, b *bound) (result action.RestoreResult, err error) {
	if wants, err := t.wanted(ctx, b); err != nil || !wants {
		return result, err
	}
	dispatch.Aside(ctx, func() { result, err = t.execute(ctx, b) })
	if err != nil {
		return result, err
	}
	if result.OperationID != "" {
		t.parked.Entry.Error(fmt.Sprintf("action %s: Execute began operation %q, which this version does not follow", b.Action.Name(), result.OperationID))
	}
	if !result.Skip && result.Object != t.object {
		err = t.loader.Check(t.it, "action "+b.Action.Name()+": Execute", result.Object, t.it.Target.Name)
	}
	return result, err
}

// maxRetries is how often an object is put to an action again whose process died.
const maxRetries = 2

// execute calls the action. A call whose process died is repeated, one such call at a time, so that
// in the end it costs the object that is to blame, and others only where several are. One that may
// begin an operation is not.
func (t *chainRun) execute(ctx context.Context, b *bound) (result action.RestoreResult, err error) {
	if _, begins := b.Action.(action.RestoreOperations); begins {
		return t.once(ctx, b)
	}
	result, err = t.call(ctx, b)
	for range maxRetries {
		if err == nil || ctx.Err() != nil || t.Collateral == nil || !t.Collateral(err) {
			return result, err
		}
		result, err = t.retry(ctx, b)
	}
	return result, err
}

func (t *chainRun) retry(ctx context.Context, b *bound) (action.RestoreResult, error) {
	select {
	case t.retrying <- struct{}{}:
	case <-ctx.Done():
		return action.RestoreResult{}, context.Cause(ctx)
	}
	defer func() { <-t.retrying }()
	return t.call(ctx, b)
}

// call makes one call, if the restore is still this process's: an action may have effects
// elsewhere, which nothing fences.
func (t *chainRun) call(ctx context.Context, b *bound) (action.RestoreResult, error) {
	if err := t.confirmed(ctx); err != nil {
		return action.RestoreResult{}, err
	}
	return b.Action.Execute(ctx, t.object, t.stored, t.Object)
}

func (t *chainRun) confirmed(ctx context.Context) error {
	if t.Confirm == nil {
		return nil
	}
	return t.Confirm(ctx)
}

// wanted reports whether the action's selector matches the object as it is now, in its namespace of
// the backup.
func (t *chainRun) wanted(ctx context.Context, b *bound) (bool, error) {
	if !b.Namespace(t.Plan.Source(t.it.Node)) {
		return false, nil
	}
	content, err := t.object.Content()
	if err != nil {
		return false, err
	}
	if !b.Labels(decoded.LabelsOf(content)) {
		return false, nil
	}
	wants, err := b.Accepts(ctx, t.object)
	if err != nil {
		return false, fmt.Errorf("action %s: AppliesTo: %w", b.Action.Name(), err)
	}
	return wants, nil
}
