package builtin

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// backupPod backs up a Pod's claims and PriorityClass with it.
type backupPod struct{ named }

func (a backupPod) Execute(_ context.Context, o *action.Object, _ *action.Backup) (_ action.BackupResult, err error) {
	defer a.guardPanic(execute, &err)
	items, err := podNeeds(o)
	return action.BackupResult{Object: o, Additional: items}, err
}

func (backupPod) Concerns(raw []byte) bool { return concernsPod(raw) }
