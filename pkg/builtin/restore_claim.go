package builtin

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/action"
)

// restoreClaim restores the volume of a PersistentVolumeClaim before it. It looks at the claim as it was backed up: where
// the volume is not brought back, what is to be created no longer names it.
type restoreClaim struct{ named }

func (a restoreClaim) Execute(_ context.Context, o, fromBackup *action.Object, _ *action.Restore) (_ action.RestoreResult, err error) {
	defer a.guard(execute, &err)
	claim, err := fromBackup.Content()
	if err != nil {
		return action.RestoreResult{}, err
	}
	result := action.RestoreResult{Object: o}
	volume, ok, err := text(claim, "spec", "volumeName")
	if ok && volume != "" {
		result.Additional = []action.Item{{GroupResource: volumes, Name: volume}}
	}
	return result, err
}
