package builtin

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// restoreClaim restores the volume of a PersistentVolumeClaim before it. A claim that is to get a
// new volume no longer names the old one.
type restoreClaim struct{ named }

func (a restoreClaim) Execute(_ context.Context, o, _ *action.Object, _ *action.Restore) (_ action.RestoreResult, err error) {
	defer a.guardPanic(execute, &err)
	claim, err := o.Content()
	if err != nil {
		return action.RestoreResult{}, err
	}
	result := action.RestoreResult{Object: o}
	volume, ok, err := textAt(claim, "spec", "volumeName")
	if ok && volume != "" {
		result.Additional = []action.Item{{GroupResource: volumes, Name: volume}}
	}
	return result, err
}
