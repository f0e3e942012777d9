package job

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// ActionSet are the restore item actions of one restore.
type ActionSet struct {
	// Items are the actions in the order in which they run.
	Items []action.RestoreItem
	// Warnings are about actions that are left out of Items on purpose, Errors about missing ones.
	Warnings, Errors []string
	// Collateral reports whether a call of Items may have failed because of another call in the same
	// process. Nil is always false.
	IsProcessCrash func(error) bool
	// Unsent reports whether an error of Items means that the call was certainly not made. Nil is
	// always false.
	IsNotSent func(error) bool
	// Close ends what belongs to the set; no action is called afterwards. Nil needs no call.
	Close func()
}

// boundActions is a restore's use of its actions.
type boundActions struct {
	set   ActionSet
	bound []action.Bound[action.RestoreItem]
	// remarks are warnings of actions before they are called.
	remarks []string
	// complaints are the errors of actions whose AppliesTo failed.
	complaints []error
	object     *action.Restore
}

// openActions opens the actions; what they log belongs to the restore. They work until closeObjects.
func openActions(_ context.Context, a *restoreAttempt) (err error) {
	in := a.inputs
	if in.isRestored() && in.records.head == (outcome.Head{}) {
		return fatalErrorf("the records of the restore do not say what it restored")
	}
	a.actions = &boundActions{}
	if a.cfg.Actions == nil || in.records.head.Finished != nil || in.isRestored() || in.restoresFiles() {
		return nil
	}
	if a.actions.object, err = action.NewRestore(in.restore.DeepCopy()); err != nil {
		return fatalErrorf("%w", err)
	}
	a.actions.set = a.cfg.Actions(a.lasting, func(e joblog.Entry) { in.recorder.Note(&e) })
	return nil
}

func (a *boundActions) close() {
	if a != nil && a.set.Close != nil {
		a.set.Close()
	}
}

// bindActions calls AppliesTo of the actions, and returns whether they may return additional items that
// are not selected. A successor plans as the first holder did.
func (a *boundActions) bindActions(ctx context.Context, survey *plan.Survey, names selection.Resolver, before *outcome.Planned) (reserve bool, err error) {
	a.bound, a.complaints = action.Bind(ctx, a.set.Items, names)
	if ctx.Err() != nil {
		return false, fmt.Errorf("ask what actions apply to: %w", context.Cause(ctx))
	}
	if before != nil {
		return before.Reserve, nil
	}
	for i := range a.bound {
		if r, ok := a.bound[i].Action.(action.Remarker); ok {
			a.remarks = append(a.remarks, r.Remarks(ctx)...)
		}
	}
	for i := range a.bound {
		if survey.Any(a.bound[i].Resource) {
			return true, nil
		}
	}
	return false, nil
}

// reportLeftOut reports the actions that are left out: warnings by the first holder only, missing
// actions by the first holder without them, and failures of AppliesTo by each holder.
func (p *restorePlanner) reportLeftOut(a *boundActions) {
	before := p.in.records.head.Planned
	if before == nil {
		for _, warning := range slices.Concat(a.set.Warnings, a.remarks) {
			p.in.recorder.Warn(outcome.General, warning)
		}
	}
	for _, missing := range a.set.Errors {
		if before == nil || !slices.Contains(before.Missing, missing) {
			p.in.recorder.Error(outcome.General, missing)
		}
	}
	for _, err := range a.complaints {
		p.in.recorder.Error(outcome.General, fmt.Sprintf("objects are restored without an action: %v", err))
	}
}
