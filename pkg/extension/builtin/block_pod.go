package builtin

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// blockPod puts a Pod's claims and PriorityClass into its block.
type blockPod struct{ named }

func (a blockPod) Related(_ context.Context, o *action.Object, _ *action.Backup) (_ []action.Item, err error) {
	defer a.guardPanic(related, &err)
	return podNeeds(o)
}

func (blockPod) Concerns(raw []byte) bool { return concernsPod(raw) }
