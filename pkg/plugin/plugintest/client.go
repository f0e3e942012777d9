package plugintest

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// client is what the clients of all kinds share.
type client struct {
	conn *grpc.ClientConn
	kind plugin.Kind
	name string
}

var wireKinds = map[plugin.Kind]pluginv1.Kind{
	plugin.KindBackupItemAction:       pluginv1.Kind_KIND_BACKUP_ITEM_ACTION,
	plugin.KindRestoreItemAction:      pluginv1.Kind_KIND_RESTORE_ITEM_ACTION,
	plugin.KindDeleteItemAction:       pluginv1.Kind_KIND_DELETE_ITEM_ACTION,
	plugin.KindItemBlockAction:        pluginv1.Kind_KIND_ITEM_BLOCK_ACTION,
	plugin.KindAsyncBackupItemAction:  pluginv1.Kind_KIND_ASYNC_BACKUP_ITEM_ACTION,
	plugin.KindAsyncRestoreItemAction: pluginv1.Kind_KIND_ASYNC_RESTORE_ITEM_ACTION,
}

// AppliesTo returns the selector as a server of ours gets it: narrowed to what the action may
// touch.
func (c client) AppliesTo(ctx context.Context) (plugin.Selector, error) {
	resp, err := pluginv1.NewPluginServiceClient(c.conn).AppliesTo(ctx, &pluginv1.AppliesToRequest{Kind: wireKinds[c.kind], Plugin: c.name})
	if err != nil {
		return plugin.Selector{}, err
	}
	s := resp.GetSelector()
	return plugin.Selector{
		IncludedNamespaces: s.GetIncludedNamespaces(), ExcludedNamespaces: s.GetExcludedNamespaces(),
		IncludedResources: s.GetIncludedResources(), ExcludedResources: s.GetExcludedResources(),
		LabelSelector: s.GetLabelSelector(), Expression: s.GetExpression(),
	}, nil
}

func decodeObject(raw []byte) (*unstructured.Unstructured, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func encodeObject(object *unstructured.Unstructured) ([]byte, error) {
	return json.Marshal(object.Object)
}

// backupBytes encodes what actions of a backup get.
func backupBytes(in *plugin.BackupInput) (item, backup []byte, err error) {
	item, err = encodeObject(in.Item)
	return item, in.Backup.JSON(), err
}

// restoreBytes encodes what actions of a restore get. The object as stored is the object itself if
// the test says nothing.
func restoreBytes(in *plugin.RestoreInput) (item, stored, restore []byte, err error) {
	if item, err = encodeObject(in.Item); err != nil {
		return nil, nil, nil, err
	}
	stored = item
	if in.ItemFromBackup != nil {
		stored, err = encodeObject(in.ItemFromBackup)
	}
	return item, stored, in.Restore.JSON(), err
}

// identifier is a named object in either protocol.
type identifier interface {
	GetGroup() string
	GetResource() string
	GetNamespace() string
	GetName() string
}

func fromWire[T identifier](items []T) []plugin.ResourceIdentifier {
	var out []plugin.ResourceIdentifier
	for _, i := range items {
		out = append(out, plugin.ResourceIdentifier{Group: i.GetGroup(), Resource: i.GetResource(), Namespace: i.GetNamespace(), Name: i.GetName()})
	}
	return out
}

func toWire(items []plugin.ResourceIdentifier) []*velero.ResourceIdentifier {
	out := make([]*velero.ResourceIdentifier, 0, len(items))
	for _, i := range items {
		out = append(out, &velero.ResourceIdentifier{Group: i.Group, Resource: i.Resource, Namespace: i.Namespace, Name: i.Name})
	}
	return out
}
