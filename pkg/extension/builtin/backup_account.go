package builtin

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// backupAccount backs up with a ServiceAccount what it may do in the whole cluster.
type backupAccount struct {
	named
	bindings
}

func (a backupAccount) Execute(ctx context.Context, o *action.Object, _ *action.Backup) (_ action.BackupResult, err error) {
	defer a.guardPanic(execute, &err)
	items, err := a.itemsOfAccount(ctx, o)
	return action.BackupResult{Object: o, Additional: items}, err
}
