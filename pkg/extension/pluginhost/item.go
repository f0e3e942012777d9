package pluginhost

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v1"
)

// deleteItem serves generated.DeleteItemAction.
type deleteItem struct{ plugin }

// AppliesTo calls the plugin.
func (d *deleteItem) AppliesTo(ctx context.Context) (action.Selector, error) {
	return d.readSelector(ctx, func(ctx context.Context, p *process) (selectorAnswer, error) {
		return velero.NewDeleteItemActionClient(p.conn).AppliesTo(ctx, &velero.DeleteItemActionAppliesToRequest{Plugin: d.name})
	})
}

// Execute calls the plugin.
func (d *deleteItem) Execute(ctx context.Context, object *action.Object, backup *action.Backup) error {
	return d.worker.callProcess(ctx, d.newExecuteCall("Execute", object), func(ctx context.Context, p *process) error {
		item, err := object.JSON()
		if err != nil {
			return err
		}
		_, err = velero.NewDeleteItemActionClient(p.conn).Execute(ctx, &velero.DeleteItemActionExecuteRequest{
			Plugin: d.name, Item: item, Backup: backup.JSON()})
		return err
	})
}

// itemBlock serves v1.ItemBlockAction.
type itemBlock struct{ plugin }

// AppliesTo calls the plugin.
func (b *itemBlock) AppliesTo(ctx context.Context) (action.Selector, error) {
	return b.readSelector(ctx, func(ctx context.Context, p *process) (selectorAnswer, error) {
		return velerov1.NewItemBlockActionClient(p.conn).AppliesTo(ctx, &velerov1.ItemBlockActionAppliesToRequest{Plugin: b.name})
	})
}

// Related calls the plugin.
func (b *itemBlock) Related(ctx context.Context, object *action.Object, backup *action.Backup) (items []action.Item, err error) {
	c := b.newExecuteCall("GetRelatedItems", object)
	c.reads = true
	err = b.worker.callProcess(ctx, c, func(ctx context.Context, p *process) error {
		item, err := object.JSON()
		if err != nil {
			return err
		}
		answer, err := velerov1.NewItemBlockActionClient(p.conn).GetRelatedItems(ctx, &velerov1.ItemBlockActionGetRelatedItemsRequest{
			Plugin: b.name, Item: item, Backup: backup.JSON()})
		if err != nil {
			return err
		}
		items, err = itemsOf("relatedItems", answer.GetRelatedItems())
		return err
	})
	return items, err
}
