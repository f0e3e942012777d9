package builtin

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// restorePod restores the PriorityClass of a Pod before it: the API server refuses the Pod
// otherwise.
type restorePod struct{ named }

func (a restorePod) Execute(_ context.Context, o, _ *action.Object, _ *action.Restore) (_ action.RestoreResult, err error) {
	defer a.guardPanic(execute, &err)
	pod, err := o.Content()
	if err != nil {
		return action.RestoreResult{}, err
	}
	items, err := podPriority(pod)
	return action.RestoreResult{Object: o, Additional: items}, err
}
