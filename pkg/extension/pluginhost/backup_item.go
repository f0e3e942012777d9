package pluginhost

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// backupItemV1 serves generated.BackupItemAction.
type backupItemV1 struct{ plugin }

// AppliesTo calls the plugin.
func (b *backupItemV1) AppliesTo(ctx context.Context) (action.Selector, error) {
	return b.readSelector(ctx, func(ctx context.Context, p *process) (selectorAnswer, error) {
		return velero.NewBackupItemActionClient(p.conn).AppliesTo(ctx, &velero.BackupItemActionAppliesToRequest{Plugin: b.name})
	})
}

// Execute calls the plugin; version 1 starts no operations.
func (b *backupItemV1) Execute(ctx context.Context, object *action.Object, backup *action.Backup) (r action.BackupResult, err error) {
	err = b.worker.callProcess(ctx, b.newExecuteCall("Execute", object), func(ctx context.Context, p *process) error {
		item, err := object.JSON()
		if err != nil {
			return err
		}
		answer, err := velero.NewBackupItemActionClient(p.conn).Execute(ctx, &velero.ExecuteRequest{Plugin: b.name, Item: item, Backup: backup.JSON()})
		if err != nil {
			return err
		}
		r, err = backupResult(object, answer.GetItem(), answer.GetAdditionalItems())
		return err
	})
	return r, err
}

// backupResult checks what both versions answer.
func backupResult(object *action.Object, item []byte, additional []*velero.ResourceIdentifier) (action.BackupResult, error) {
	returned, err := answerOf(object, item, false)
	if err != nil {
		return action.BackupResult{}, err
	}
	items, err := itemsOf("additionalItems", additional)
	return action.BackupResult{Object: returned, Additional: items}, err
}

// backupItemV2 serves v2.BackupItemAction.
type backupItemV2 struct{ plugin }

// AppliesTo calls the plugin.
func (b *backupItemV2) AppliesTo(ctx context.Context) (action.Selector, error) {
	return b.readSelector(ctx, func(ctx context.Context, p *process) (selectorAnswer, error) {
		return velerov2.NewBackupItemActionClient(p.conn).AppliesTo(ctx, &velerov2.BackupItemActionAppliesToRequest{Plugin: b.name})
	})
}

// Prepare starts the plugin's process, if it does not run.
func (b *backupItemV2) Prepare(ctx context.Context) error {
	return b.worker.awaitReady(ctx, b.newExecuteCall("Execute", nil))
}

// Execute calls the plugin.
func (b *backupItemV2) Execute(ctx context.Context, object *action.Object, backup *action.Backup) (r action.BackupResult, err error) {
	err = b.worker.callProcess(ctx, b.newExecuteCall("Execute", object), func(ctx context.Context, p *process) error {
		item, err := object.JSON()
		if err != nil {
			return err
		}
		answer, err := velerov2.NewBackupItemActionClient(p.conn).Execute(ctx, &velerov2.ExecuteRequest{Plugin: b.name, Item: item, Backup: backup.JSON()})
		if err != nil {
			return err
		}
		if err := b.checkOperationID(ctx, p, answer.GetOperationId(), backup.JSON()); err != nil {
			return err
		}
		r, err = backupResult(object, answer.GetItem(), answer.GetAdditionalItems())
		r.OperationID = answer.GetOperationId() // whatever is wrong with the rest
		if err != nil {
			return err
		}
		r.PostOperation, err = itemsOf("postOperationItems", answer.GetPostOperationItems())
		return err
	})
	return r, err
}

// OperationKind implements action.BackupOperations.
func (*backupItemV2) OperationKind() string { return string(KindBackupItemActionV2) }
