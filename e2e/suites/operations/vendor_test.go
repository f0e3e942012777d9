package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// serveVendor serves the action of Velero's protocol. It does not return before the server ends it.
func serveVendor(p *provider) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{ProtocolVersion: 2, MagicCookieKey: "VELERO_PLUGIN", MagicCookieValue: "hello"},
		Plugins:         goplugin.PluginSet{"all": &vendor{provider: p}},
		GRPCServer:      goplugin.DefaultGRPCServer,
	})
}

// vendor is a process with a backup and a restore item action of version 2.
type vendor struct {
	goplugin.NetRPCUnsupportedPlugin
	velero.UnimplementedPluginListerServer
	velerov2.UnimplementedBackupItemActionServer
	*provider
}

// GRPCClient is not used on this side.
func (*vendor) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this is a plugin")
}

// GRPCServer registers everything.
func (v *vendor) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	velero.RegisterPluginListerServer(s, v)
	velerov2.RegisterBackupItemActionServer(s, v)
	velerov2.RegisterRestoreItemActionServer(s, &vendorRestore{provider: v.provider})
	return nil
}

// ListPlugins names the action.
func (*vendor) ListPlugins(context.Context, *velero.Empty) (*velero.ListPluginsResponse, error) {
	return &velero.ListPluginsResponse{Plugins: []*velero.PluginIdentifier{
		{Command: os.Args[0], Kind: "BackupItemActionV2", Name: vendorAction}, {Command: os.Args[0], Kind: "RestoreItemActionV2", Name: vendorRestores},
	}}, nil
}

// AppliesTo selects Secrets.
func (*vendor) AppliesTo(context.Context, *velerov2.BackupItemActionAppliesToRequest) (*velerov2.BackupItemActionAppliesToResponse, error) {
	return &velerov2.BackupItemActionAppliesToResponse{ResourceSelector: &velero.ResourceSelector{IncludedResources: []string{"secrets"}}}, nil
}

// Execute begins the operation.
func (v *vendor) Execute(ctx context.Context, r *velerov2.ExecuteRequest) (*velerov2.ExecuteResponse, error) {
	var item, backup unstructured.Unstructured
	if err := errors.Join(json.Unmarshal(r.GetItem(), &item.Object), json.Unmarshal(r.GetBackup(), &backup.Object)); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	answer := &velerov2.ExecuteResponse{Item: r.GetItem()}
	w, err := v.startOperation(ctx, &item, orderKey, backup.GetName(), "")
	if w == nil || err != nil {
		return answer, err
	}
	answer.OperationId = w.workID()
	answer.PostOperationItems = []*velero.ResourceIdentifier{{Group: group, Resource: works, Namespace: w.Namespace, Name: w.Name}}
	return answer, nil
}

// Progress returns the progress of an operation.
func (v *vendor) Progress(ctx context.Context, r *velerov2.BackupItemActionProgressRequest) (*velerov2.BackupItemActionProgressResponse, error) {
	w, err := v.readProgress(ctx, r.GetOperationId())
	if err != nil {
		return nil, err
	}
	return &velerov2.BackupItemActionProgressResponse{Progress: progressOf(w)}, nil
}

func progressOf(w *workObject) *velero.OperationProgress {
	p := &velero.OperationProgress{NCompleted: w.Status.Steps, NTotal: total, OperationUnits: unit, Completed: w.Spec.Result != ""}
	switch w.Spec.Result {
	case failed:
		p.Err = w.Spec.Order.Fails
	case cancelled:
		p.Err = "the work was cancelled"
	}
	if at := w.startedAt(); !at.IsZero() {
		p.Started = timestamppb.New(at)
	}
	return p
}

// Cancel ends an operation. This protocol has no answer for one that is not accepted.
func (v *vendor) Cancel(ctx context.Context, r *velerov2.BackupItemActionCancelRequest) (*emptypb.Empty, error) {
	_, err := v.cancelOperation(ctx, r.GetOperationId())
	return &emptypb.Empty{}, err
}
