package plugintest

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v1"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// BackupItemAction returns a client of the action of that name. Outputs have the item as a server
// gets it: what MustInclude and SkipBackup ask for is in its annotations too.
func (p *Process) BackupItemAction(name string) plugin.BackupItemAction {
	return backupAction{client{p.conn, plugin.KindBackupItemAction, name}}
}

type backupAction struct{ client }

func (a backupAction) Execute(ctx context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
	item, backup, err := backupBytes(in)
	if err != nil {
		return nil, err
	}
	resp, err := velero.NewBackupItemActionClient(a.conn).Execute(ctx, &velero.ExecuteRequest{Plugin: a.name, Item: item, Backup: backup})
	if err != nil {
		return nil, err
	}
	object, err := decodeObject(resp.GetItem())
	if err != nil {
		return nil, err
	}
	annotations := object.GetAnnotations()
	return &plugin.BackupOutput{
		Item: object, AdditionalItems: fromWire(resp.GetAdditionalItems()),
		MustInclude: annotations["backup.velero.io/must-include-additional-items"] == "true", SkipBackup: annotations["velero.io/skip-from-backup"] != "",
	}, nil
}

// RestoreItemAction returns a client of the action of that name. An input without ItemFromBackup is
// sent with Item in its place.
func (p *Process) RestoreItemAction(name string) plugin.RestoreItemAction {
	return restoreAction{client{p.conn, plugin.KindRestoreItemAction, name}}
}

type restoreAction struct{ client }

func (a restoreAction) Execute(ctx context.Context, in *plugin.RestoreInput) (*plugin.RestoreOutput, error) {
	item, stored, restore, err := restoreBytes(in)
	if err != nil {
		return nil, err
	}
	resp, err := velerov2.NewRestoreItemActionClient(a.conn).Execute(ctx, &velerov2.RestoreItemActionExecuteRequest{
		Plugin: a.name, Item: item, ItemFromBackup: stored, Restore: restore,
	})
	if err != nil {
		return nil, err
	}
	object, err := decodeObject(resp.GetItem())
	return &plugin.RestoreOutput{
		Item: object, AdditionalItems: fromWire(resp.GetAdditionalItems()), SkipRestore: resp.GetSkipRestore(),
		WaitForAdditionalItems: resp.GetWaitForAdditionalItems(), AdditionalItemsReadyTimeout: resp.GetAdditionalItemsReadyTimeout().AsDuration(),
	}, err
}

func (a restoreAction) AreAdditionalItemsReady(ctx context.Context, restore *plugin.Job, items []plugin.ResourceIdentifier) (bool, error) {
	resp, err := velerov2.NewRestoreItemActionClient(a.conn).AreAdditionalItemsReady(ctx, &velerov2.RestoreItemActionItemsReadyRequest{
		Plugin: a.name, Restore: restore.JSON(), AdditionalItems: toWire(items),
	})
	return resp.GetReady(), err
}

// DeleteItemAction returns a client of the action of that name.
func (p *Process) DeleteItemAction(name string) plugin.DeleteItemAction {
	return deleteAction{client{p.conn, plugin.KindDeleteItemAction, name}}
}

type deleteAction struct{ client }

func (a deleteAction) Execute(ctx context.Context, in *plugin.BackupInput) error {
	item, backup, err := backupBytes(in)
	if err != nil {
		return err
	}
	_, err = velero.NewDeleteItemActionClient(a.conn).Execute(ctx, &velero.DeleteItemActionExecuteRequest{Plugin: a.name, Item: item, Backup: backup})
	return err
}

// ItemBlockAction returns a client of the action of that name.
func (p *Process) ItemBlockAction(name string) plugin.ItemBlockAction {
	return blockAction{client{p.conn, plugin.KindItemBlockAction, name}}
}

type blockAction struct{ client }

func (a blockAction) GetRelatedItems(ctx context.Context, in *plugin.BackupInput) ([]plugin.ResourceIdentifier, error) {
	item, backup, err := backupBytes(in)
	if err != nil {
		return nil, err
	}
	resp, err := velerov1.NewItemBlockActionClient(a.conn).GetRelatedItems(ctx, &velerov1.ItemBlockActionGetRelatedItemsRequest{
		Plugin: a.name, Item: item, Backup: backup,
	})
	return fromWire(resp.GetRelatedItems()), err
}
