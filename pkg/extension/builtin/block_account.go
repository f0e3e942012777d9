package builtin

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// blockAccount puts what a ServiceAccount may do in the whole cluster into its block.
type blockAccount struct {
	named
	bindings
}

func (a blockAccount) Related(ctx context.Context, o *action.Object, _ *action.Backup) (_ []action.Item, err error) {
	defer a.guardPanic(related, &err)
	return a.itemsOfAccount(ctx, o)
}
