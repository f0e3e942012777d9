package builtin

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// restorePodClaims restores the claims of a Pod before it, also those that the restore does not
// select.
type restorePodClaims struct{ named }

func (a restorePodClaims) Execute(_ context.Context, o, fromBackup *action.Object, _ *action.Restore) (_ action.RestoreResult, err error) {
	defer a.guardPanic(execute, &err)
	pod, err := o.Content()
	if err != nil {
		return action.RestoreResult{}, err
	}
	items, err := podClaims(pod, "")
	if err != nil || len(items) == 0 {
		return action.RestoreResult{Object: o}, err
	}
	id, err := fromBackup.Identity() // additional items are named as in the backup, whatever namespace they go to
	if err != nil {
		return action.RestoreResult{}, err
	}
	for i := range items {
		items[i].Namespace = id.Namespace
	}
	return action.RestoreResult{Object: o, Additional: items}, nil
}
