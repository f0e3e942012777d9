package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// The plugins of a bed. What may begin an operation speaks Velero's protocol, the others
// Holdfast's. Every call of one leaves a file in the directory that the object, or the location,
// names.
const (
	pluginOfOurs   = "faults"
	pluginOfVelero = "vendor"

	snapshotter = "fault.example.com/snapshots"
	cleaner     = "fault.example.com/cleans"
	beginner    = "fault.example.com/begins"

	// callsKey is the annotation of objects, and the key of a location's config, that names the
	// directory for calls.
	callsKey = "fault.example.com/calls"
	// longLabel is the label of objects whose action begins an operation.
	longLabel = "fault.example.com/long"
	// acted is the resource that item actions are called for.
	acted = "podtemplates"
)

// Plugins are the names of the binaries in a bed's plugin directory, each of which calls
// ServePlugin.
var Plugins = []string{pluginOfOurs, pluginOfVelero}

// ServePlugin is the main function of a process that was started as a plugin. It does not return
// before the server ends it.
func ServePlugin() error {
	if filepath.Base(os.Args[0]) == pluginOfVelero {
		goplugin.Serve(&goplugin.ServeConfig{
			HandshakeConfig: goplugin.HandshakeConfig{ProtocolVersion: 2, MagicCookieKey: "VELERO_PLUGIN", MagicCookieValue: "hello"},
			Plugins:         goplugin.PluginSet{"all": &vendor{}},
			GRPCServer:      goplugin.DefaultGRPCServer,
		})
		return nil
	}
	registry := &plugin.Registry{}
	registry.VolumeSnapshotter(snapshotter, func(plugin.Env) (plugin.VolumeSnapshotter, error) { return &snapshots{}, nil })
	registry.DeleteItemAction(cleaner, []string{acted}, func(plugin.Env) (plugin.DeleteItemAction, error) { return cleans{}, nil })
	return serve.Run(registry)
}

// noteCall notes a call and returns how many there were before. The name begins with what was called
// and the job.
func noteCall(dir string, name ...string) (before int, err error) {
	text := strings.Join(name, ".")
	found, err := filepath.Glob(filepath.Join(dir, text+"-*"))
	if err != nil {
		return 0, err
	}
	f, err := os.CreateTemp(dir, text+"-*")
	if err != nil {
		return 0, err
	}
	return len(found), f.Close()
}

// callCounts counts the calls that a job made, by what was called.
func (b *Bed) callCounts(job string) (map[string]int, error) {
	counts := map[string]int{}
	entries, err := os.ReadDir(b.called)
	for _, entry := range entries {
		name := entry.Name()
		if what, _, ok := strings.Cut(name[:max(strings.LastIndex(name, "-"), 0)], "."+job+"."); ok {
			counts[what]++
		}
	}
	return counts, err
}

// cleans fails at the first call for each object of a backup.
type cleans struct{ plugin.Everything }

// Execute implements plugin.DeleteItemAction.
func (cleans) Execute(_ context.Context, in *plugin.BackupInput) error {
	before, err := noteCall(in.Item.GetAnnotations()[callsKey], "clean", in.Backup.Name(), in.Item.GetName())
	if err == nil && before == 0 {
		err = errors.New("not at the first call")
	}
	return err
}

// snapshots takes snapshots of every volume.
type snapshots struct{ dir string }

// Init implements plugin.VolumeSnapshotter.
func (s *snapshots) Init(_ context.Context, config map[string]string) error {
	s.dir = config[callsKey]
	return nil
}

// CreateSnapshot implements plugin.VolumeSnapshotter.
func (s *snapshots) CreateSnapshot(_ context.Context, volumeID, _ string, tags map[string]string) (string, error) {
	_, err := noteCall(s.dir, "snapshot", tags["velero.io/backup"], volumeID)
	return volumeID + "-of-" + tags["velero.io/backup"], err
}

// CreateVolumeFromSnapshot implements plugin.VolumeSnapshotter.
func (*snapshots) CreateVolumeFromSnapshot(_ context.Context, snapshotID, _, _ string, _ int64) (string, error) {
	return "from-" + snapshotID, nil
}

// GetVolumeInfo implements plugin.VolumeSnapshotter.
func (*snapshots) GetVolumeInfo(context.Context, string, string) (volumeType string, iops int64, err error) {
	return "slow", 0, nil
}

// DeleteSnapshot implements plugin.VolumeSnapshotter.
func (*snapshots) DeleteSnapshot(context.Context, string) error { return nil }

// GetVolumeID implements plugin.VolumeSnapshotter.
func (*snapshots) GetVolumeID(_ context.Context, volume *unstructured.Unstructured) (string, error) {
	return volume.GetName(), nil
}

// SetVolumeID implements plugin.VolumeSnapshotter.
func (*snapshots) SetVolumeID(_ context.Context, volume *unstructured.Unstructured, _ string) (*unstructured.Unstructured, error) {
	return volume, nil
}

// vendor is a process of item actions of version 2.
type vendor struct {
	goplugin.NetRPCUnsupportedPlugin
}

// GRPCClient is not used on this side.
func (*vendor) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is a plugin")
}

// GRPCServer registers everything.
func (*vendor) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	velero.RegisterPluginListerServer(s, lister{})
	velerov2.RegisterBackupItemActionServer(s, backupBegins{})
	velerov2.RegisterRestoreItemActionServer(s, restoreBegins{})
	return nil
}

type lister struct {
	velero.UnimplementedPluginListerServer
}

// ListPlugins names the actions.
func (lister) ListPlugins(context.Context, *velero.Empty) (*velero.ListPluginsResponse, error) {
	answer := &velero.ListPluginsResponse{}
	for _, kind := range []string{"BackupItemActionV2", "RestoreItemActionV2"} {
		answer.Plugins = append(answer.Plugins, &velero.PluginIdentifier{Command: os.Args[0], Kind: kind, Name: beginner})
	}
	return answer, nil
}

// noteBegin notes a call of an action that may begin an operation.
func noteBegin(what string, item, job []byte) (object, of unstructured.Unstructured, err error) {
	if err := errors.Join(json.Unmarshal(item, &object.Object), json.Unmarshal(job, &of.Object)); err != nil {
		return object, of, fmt.Errorf("decode: %w", err)
	}
	if phase, _, _ := unstructured.NestedString(of.Object, "status", "phase"); strings.HasPrefix(phase, "Finalizing") {
		what = "again"
	}
	_, err = noteCall(object.GetAnnotations()[callsKey], what, of.GetName(), object.GetName())
	return object, of, err
}

type backupBegins struct {
	velerov2.UnimplementedBackupItemActionServer
}

// AppliesTo selects what is acted on.
func (backupBegins) AppliesTo(context.Context, *velerov2.BackupItemActionAppliesToRequest) (*velerov2.BackupItemActionAppliesToResponse, error) {
	return &velerov2.BackupItemActionAppliesToResponse{ResourceSelector: &velero.ResourceSelector{IncludedResources: []string{acted}}}, nil
}

// Execute leaves the object as it is. For some it begins an operation, which is known by the
// directory for calls and the name of the backup, and after which the object is to be stored again.
func (backupBegins) Execute(_ context.Context, r *velerov2.ExecuteRequest) (*velerov2.ExecuteResponse, error) {
	object, backup, err := noteBegin("backup", r.GetItem(), r.GetBackup())
	answer := &velerov2.ExecuteResponse{Item: r.GetItem()}
	if phase, _, _ := unstructured.NestedString(backup.Object, "status", "phase"); object.GetLabels()[longLabel] != "" && phase == "InProgress" {
		answer.OperationId = object.GetAnnotations()[callsKey] + ":" + backup.GetName()
		answer.PostOperationItems = []*velero.ResourceIdentifier{{Resource: acted, Namespace: object.GetNamespace(), Name: object.GetName()}}
	}
	return answer, err
}

// Progress reports the end of an operation at the third call.
func (backupBegins) Progress(_ context.Context, r *velerov2.BackupItemActionProgressRequest) (*velerov2.BackupItemActionProgressResponse, error) {
	p, err := operationProgress(r.GetOperationId())
	return &velerov2.BackupItemActionProgressResponse{Progress: p}, err
}

func operationProgress(id string) (*velero.OperationProgress, error) {
	dir, job, ok := strings.Cut(id, ":")
	if !ok {
		return nil, fmt.Errorf("operation ID: %q", id)
	}
	before, err := noteCall(dir, "progress", job)
	return &velero.OperationProgress{Completed: before >= 2, NCompleted: int64(min(before, 2)), NTotal: 2, OperationUnits: "Polls"}, err
}

type restoreBegins struct {
	velerov2.UnimplementedRestoreItemActionServer
}

// AppliesTo selects what is acted on.
func (restoreBegins) AppliesTo(context.Context, *velerov2.RestoreItemActionAppliesToRequest) (*velerov2.RestoreItemActionAppliesToResponse, error) {
	return &velerov2.RestoreItemActionAppliesToResponse{ResourceSelector: &velero.ResourceSelector{IncludedResources: []string{acted}}}, nil
}

// Execute leaves the object as it is. For some it begins an operation, as that of a backup does.
func (restoreBegins) Execute(_ context.Context, r *velerov2.RestoreItemActionExecuteRequest) (*velerov2.RestoreItemActionExecuteResponse, error) {
	object, restore, err := noteBegin("restore", r.GetItem(), r.GetRestore())
	answer := &velerov2.RestoreItemActionExecuteResponse{Item: r.GetItem()}
	if object.GetLabels()[longLabel] != "" {
		answer.OperationId = object.GetAnnotations()[callsKey] + ":" + restore.GetName()
	}
	return answer, err
}

// Progress reports the end of an operation at the third call.
func (restoreBegins) Progress(_ context.Context, r *velerov2.RestoreItemActionProgressRequest) (*velerov2.RestoreItemActionProgressResponse, error) {
	p, err := operationProgress(r.GetOperationId())
	return &velerov2.RestoreItemActionProgressResponse{Progress: p}, err
}
