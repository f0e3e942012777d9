package pluginhost

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// restoreItemV1 serves generated.RestoreItemAction.
type restoreItemV1 struct{ plugin }

// AppliesTo calls the plugin.
func (a *restoreItemV1) AppliesTo(ctx context.Context) (action.Selector, error) {
	return a.readSelector(ctx, func(ctx context.Context, p *process) (selectorAnswer, error) {
		return velero.NewRestoreItemActionClient(p.conn).AppliesTo(ctx, &velero.RestoreItemActionAppliesToRequest{Plugin: a.name})
	})
}

// Execute calls the plugin; version 1 neither waits nor starts operations.
func (a *restoreItemV1) Execute(ctx context.Context, object, fromBackup *action.Object, restore *action.Restore) (r action.RestoreResult, err error) {
	err = a.worker.callProcess(ctx, a.newExecuteCall("Execute", object), func(ctx context.Context, p *process) error {
		item, original, err := encodeBoth(object, fromBackup)
		if err != nil {
			return err
		}
		answer, err := velero.NewRestoreItemActionClient(p.conn).Execute(ctx, &velero.RestoreItemActionExecuteRequest{
			Plugin: a.name, Item: item, ItemFromBackup: original, Restore: restore.JSON()})
		if err != nil {
			return err
		}
		r, err = restoreResult(object, answer)
		return err
	})
	return r, err
}

func encodeBoth(object, fromBackup *action.Object) (item, original []byte, err error) {
	if item, err = object.JSON(); err != nil {
		return nil, nil, err
	}
	original, err = fromBackup.JSON()
	return item, original, err
}

// restoreAnswer is what both versions answer.
type restoreAnswer interface {
	GetItem() []byte
	GetAdditionalItems() []*velero.ResourceIdentifier
	GetSkipRestore() bool
}

// restoreResult checks what both versions answer. An action that skips need not return an item.
func restoreResult(object *action.Object, answer restoreAnswer) (r action.RestoreResult, err error) {
	r.Skip = answer.GetSkipRestore()
	if !r.Skip || len(answer.GetItem()) > 0 {
		if r.Object, err = answerOf(object, answer.GetItem(), true); err != nil {
			return r, err
		}
	}
	r.Additional, err = itemsOf("additionalItems", answer.GetAdditionalItems())
	return r, err
}

// restoreItemV2 serves v2.RestoreItemAction, as far as it is about items.
type restoreItemV2 struct{ plugin }

// restoreOperations serves all of v2.RestoreItemAction. Plugins of Holdfast's SDK answer without
// it: their actions that begin operations are another kind.
type restoreOperations struct{ restoreItemV2 }

// OperationKind implements action.RestoreOperations.
func (*restoreOperations) OperationKind() string { return string(KindRestoreItemActionV2) }

// Prepare implements action.Preparer.
func (a *restoreOperations) Prepare(ctx context.Context) error {
	return a.worker.awaitReady(ctx, a.newShortCall("Prepare"))
}

// AppliesTo calls the plugin.
func (a *restoreItemV2) AppliesTo(ctx context.Context) (action.Selector, error) {
	return a.readSelector(ctx, func(ctx context.Context, p *process) (selectorAnswer, error) {
		return velerov2.NewRestoreItemActionClient(p.conn).AppliesTo(ctx, &velerov2.RestoreItemActionAppliesToRequest{Plugin: a.name})
	})
}

// Execute calls the plugin.
func (a *restoreItemV2) Execute(ctx context.Context, object, fromBackup *action.Object, restore *action.Restore) (r action.RestoreResult, err error) {
	err = a.worker.callProcess(ctx, a.newExecuteCall("Execute", object), func(ctx context.Context, p *process) error {
		item, original, err := encodeBoth(object, fromBackup)
		if err != nil {
			return err
		}
		answer, err := velerov2.NewRestoreItemActionClient(p.conn).Execute(ctx, &velerov2.RestoreItemActionExecuteRequest{
			Plugin: a.name, Item: item, ItemFromBackup: original, Restore: restore.JSON()})
		if err != nil {
			return err
		}
		if err := a.checkOperationID(ctx, p, answer.GetOperationId(), restore.JSON()); err != nil {
			return err
		}
		r, err = restoreResult(object, answer)
		r.OperationID = answer.GetOperationId() // whatever is wrong with the rest
		if err != nil {
			return err
		}
		r.Wait = answer.GetWaitForAdditionalItems()
		return readyTimeout(&r, answer.GetAdditionalItemsReadyTimeout())
	})
	return r, err
}

func readyTimeout(r *action.RestoreResult, timeout *durationpb.Duration) error {
	if timeout == nil {
		return nil
	}
	if err := timeout.CheckValid(); err != nil || timeout.AsDuration() < 0 {
		return fmt.Errorf("%w: additionalItemsReadyTimeout: %d s %d ns", ErrMalformed, timeout.GetSeconds(), timeout.GetNanos())
	}
	r.WaitTimeout = timeout.AsDuration()
	return nil
}

// Ready calls the plugin.
func (a *restoreItemV2) Ready(ctx context.Context, items []action.Item, restore *action.Restore) (ready bool, err error) {
	err = a.worker.callProcess(ctx, a.newQuery("AreAdditionalItemsReady"), func(ctx context.Context, p *process) error {
		answer, err := velerov2.NewRestoreItemActionClient(p.conn).AreAdditionalItemsReady(ctx, &velerov2.RestoreItemActionItemsReadyRequest{
			Plugin: a.name, AdditionalItems: identifiersOf(items), Restore: restore.JSON()})
		ready = answer.GetReady()
		return err
	})
	return ready, err
}
