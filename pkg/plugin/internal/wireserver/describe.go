package wireserver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// veleroKinds are the kinds in Velero's listing: it refuses a binary that lists any other.
var veleroKinds = map[plugin.Kind]string{
	plugin.KindBackupItemAction:  "BackupItemAction",
	plugin.KindRestoreItemAction: "RestoreItemActionV2",
	plugin.KindDeleteItemAction:  "DeleteItemAction",
	plugin.KindItemBlockAction:   "ItemBlockAction",
	plugin.KindObjectStore:       "ObjectStore",
	plugin.KindVolumeSnapshotter: "VolumeSnapshotter",
}

// veleroTwins are the kinds under which Velero knows asynchronous actions whose operations live
// outside the process.
var veleroTwins = map[plugin.Kind]string{
	plugin.KindAsyncBackupItemAction:  "BackupItemActionV2",
	plugin.KindAsyncRestoreItemAction: "RestoreItemActionV2",
}

var kinds = map[plugin.Kind]pluginv1.Kind{
	plugin.KindBackupItemAction:       pluginv1.Kind_KIND_BACKUP_ITEM_ACTION,
	plugin.KindRestoreItemAction:      pluginv1.Kind_KIND_RESTORE_ITEM_ACTION,
	plugin.KindDeleteItemAction:       pluginv1.Kind_KIND_DELETE_ITEM_ACTION,
	plugin.KindItemBlockAction:        pluginv1.Kind_KIND_ITEM_BLOCK_ACTION,
	plugin.KindObjectStore:            pluginv1.Kind_KIND_OBJECT_STORE,
	plugin.KindVolumeSnapshotter:      pluginv1.Kind_KIND_VOLUME_SNAPSHOTTER,
	plugin.KindAsyncBackupItemAction:  pluginv1.Kind_KIND_ASYNC_BACKUP_ITEM_ACTION,
	plugin.KindAsyncRestoreItemAction: pluginv1.Kind_KIND_ASYNC_RESTORE_ITEM_ACTION,
}

func kindOf(wire pluginv1.Kind) (plugin.Kind, error) {
	for kind, w := range kinds {
		if w == wire {
			return kind, nil
		}
	}
	return "", status.Errorf(codes.InvalidArgument, "kind: %s is none", wire)
}

type lister struct {
	velero.UnimplementedPluginListerServer
	*Server
}

func (l lister) ListPlugins(context.Context, *velero.Empty) (*velero.ListPluginsResponse, error) {
	resp := &velero.ListPluginsResponse{}
	for _, h := range l.sorted {
		kind, ok := veleroKinds[h.Kind]
		if h.OutOfProcess {
			kind, ok = veleroTwins[h.Kind]
		}
		if ok {
			resp.Plugins = append(resp.Plugins, &velero.PluginIdentifier{Command: l.options.Command, Kind: kind, Name: h.Name})
		}
	}
	return resp, nil
}

type describer struct {
	pluginv1.UnimplementedPluginServiceServer
	*Server
}

func (d describer) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	resp := &pluginv1.DescribeResponse{ProcessId: d.processID}
	for _, h := range d.sorted {
		resp.Plugins = append(resp.Plugins, &pluginv1.Plugin{Kind: kinds[h.Kind], Name: h.Name, Touches: h.Touches})
	}
	return resp, nil
}

func (d describer) AppliesTo(ctx context.Context, req *pluginv1.AppliesToRequest) (*pluginv1.AppliesToResponse, error) {
	kind, err := kindOf(req.GetKind())
	if err != nil {
		return nil, err
	}
	if kind == plugin.KindObjectStore || kind == plugin.KindVolumeSnapshotter {
		return nil, status.Errorf(codes.InvalidArgument, "kind: %s is no action", kind)
	}
	action, h, err := findPlugin[plugin.Action](d.Server, kind, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	chosen, err := h.readSelector(ctx, action)
	if err != nil {
		return nil, err
	}
	return &pluginv1.AppliesToResponse{Selector: &pluginv1.Selector{
		IncludedNamespaces: chosen.IncludedNamespaces, ExcludedNamespaces: chosen.ExcludedNamespaces,
		IncludedResources: chosen.IncludedResources, ExcludedResources: chosen.ExcludedResources,
		LabelSelector: chosen.LabelSelector, Expression: chosen.Expression,
	}}, nil
}
