package wireserver

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
)

type asyncActions struct {
	pluginv1.UnimplementedAsyncActionServiceServer
	*Server
}

func (a asyncActions) StartBackup(ctx context.Context, req *pluginv1.StartBackupRequest) (*pluginv1.StartBackupResponse, error) {
	action, h, err := findPlugin[plugin.AsyncBackupItemAction](a.Server, plugin.KindAsyncBackupItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	if req.GetIdempotencyKey() == "" {
		return nil, status.Error(codes.InvalidArgument, "idempotency_key: missing")
	}
	in, matched, err := a.backupInput(ctx, h, action, req.GetItem(), req.GetBackup())
	if err != nil || !matched {
		return &pluginv1.StartBackupResponse{}, err
	}
	out, err := startBackup(ctx, h, action, in, req.GetIdempotencyKey())
	if err != nil || out == nil {
		return &pluginv1.StartBackupResponse{}, err
	}
	item, err := encodeChanged(out.Item)
	return &pluginv1.StartBackupResponse{
		Item: item, OperationId: out.OperationID, InProcess: out.InProcess,
		AdditionalItems: ownIdentifiers(out.AdditionalItems), PostOperationItems: ownIdentifiers(out.PostOperationItems),
	}, err
}

func (a asyncActions) StartRestore(ctx context.Context, req *pluginv1.StartRestoreRequest) (*pluginv1.StartRestoreResponse, error) {
	action, h, err := findPlugin[plugin.AsyncRestoreItemAction](a.Server, plugin.KindAsyncRestoreItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	if req.GetIdempotencyKey() == "" {
		return nil, status.Error(codes.InvalidArgument, "idempotency_key: missing")
	}
	in, matched, err := a.restoreInput(ctx, h, action, req.GetItem(), req.GetItemFromBackup(), req.GetRestore())
	if err != nil || !matched {
		return &pluginv1.StartRestoreResponse{}, err
	}
	out, err := startRestore(ctx, h, action, in, req.GetIdempotencyKey())
	if err != nil || out == nil {
		return &pluginv1.StartRestoreResponse{}, err
	}
	item, err := encodeChanged(out.Item)
	return &pluginv1.StartRestoreResponse{
		Item: item, OperationId: out.OperationID, InProcess: out.InProcess,
		AdditionalItems: ownIdentifiers(out.AdditionalItems), SkipRestore: out.SkipRestore,
	}, err
}

// startBackup calls the action, and refuses an answer that is not what it was registered as.
func startBackup(ctx context.Context, h *pluginHandle, action plugin.AsyncBackupItemAction, in plugin.BackupInput, key string) (*plugin.AsyncBackupOutput, error) {
	out, err := action.Start(ctx, &plugin.AsyncBackupInput{BackupInput: in, IdempotencyKey: key})
	if err == nil && out != nil && out.InProcess && h.OutOfProcess {
		return nil, inProcess(h)
	}
	return out, err
}

// startRestore is startBackup for a restore.
func startRestore(ctx context.Context, h *pluginHandle, action plugin.AsyncRestoreItemAction, in plugin.RestoreInput, key string) (*plugin.AsyncRestoreOutput, error) {
	out, err := action.Start(ctx, &plugin.AsyncRestoreInput{RestoreInput: in, IdempotencyKey: key})
	if err == nil && out != nil && out.InProcess && h.OutOfProcess {
		return nil, inProcess(h)
	}
	return out, err
}

func inProcess(h *pluginHandle) error {
	return status.Errorf(codes.FailedPrecondition, "Start of %s: InProcess: it was registered as OutOfProcess", h.Name)
}

// findOperation finds the action of an operation and what it gets to know.
func (a asyncActions) findOperation(wire pluginv1.Kind, name, id string, job []byte) (plugin.Operations, plugin.Operation, error) {
	kind, err := kindOf(wire)
	if err != nil {
		return nil, plugin.Operation{}, err
	}
	if kind != plugin.KindAsyncBackupItemAction && kind != plugin.KindAsyncRestoreItemAction {
		return nil, plugin.Operation{}, status.Errorf(codes.InvalidArgument, "kind: %s has no operations", kind)
	}
	operations, _, err := findPlugin[plugin.Operations](a.Server, kind, name)
	if err != nil {
		return nil, plugin.Operation{}, err
	}
	if id == "" {
		return nil, plugin.Operation{}, status.Error(codes.InvalidArgument, "operation_id: missing")
	}
	decoded, err := a.jobs.decodeJob("job", job)
	return operations, plugin.Operation{ID: id, Job: decoded}, err
}

func (a asyncActions) Progress(ctx context.Context, req *pluginv1.ProgressRequest) (*pluginv1.ProgressResponse, error) {
	operations, op, err := a.findOperation(req.GetKind(), req.GetPlugin(), req.GetOperationId(), req.GetJob())
	if err != nil {
		return nil, err
	}
	p, err := operations.Progress(ctx, op)
	if err != nil {
		return nil, err
	}
	if p.State < plugin.Pending || p.State > plugin.Cancelled {
		return nil, status.Errorf(codes.Internal, "Progress: the action did not say the state of operation %q", op.ID)
	}
	return &pluginv1.ProgressResponse{Progress: &pluginv1.OperationProgress{
		State: pluginv1.OperationState(p.State), Error: p.Error, Done: p.Done, Total: p.Total, Unit: p.Unit,
		Description: p.Description, Started: timestampOrNil(p.Started), Updated: timestampOrNil(p.Updated),
	}}, nil
}

func (a asyncActions) Cancel(ctx context.Context, req *pluginv1.CancelRequest) (*pluginv1.CancelResponse, error) {
	operations, op, err := a.findOperation(req.GetKind(), req.GetPlugin(), req.GetOperationId(), req.GetJob())
	if err != nil {
		return nil, err
	}
	grace := req.GetGrace().AsDuration()
	if grace < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "grace: %s is negative", grace)
	}
	accepted, err := operations.Cancel(ctx, op, grace)
	return &pluginv1.CancelResponse{Accepted: accepted}, err
}

func (a asyncActions) Logs(req *pluginv1.LogsRequest, stream grpc.ServerStreamingServer[pluginv1.LogsResponse]) error {
	operations, op, err := a.findOperation(req.GetKind(), req.GetPlugin(), req.GetOperationId(), req.GetJob())
	if err != nil {
		return err
	}
	options := plugin.LogOptions{Follow: req.GetFollow()}
	if req.GetSince() != nil {
		options.Since = req.GetSince().AsTime()
	}
	for line, err := range operations.Logs(stream.Context(), op, options) {
		if err != nil {
			return err
		}
		if err := stream.Send(&pluginv1.LogsResponse{Time: timestampOrNil(line.Time), Level: line.Level, Message: line.Message, Fields: line.Fields}); err != nil {
			return err
		}
	}
	return nil
}

// encodeChanged encodes an object that may be left out when it is unchanged.
func encodeChanged(item *unstructured.Unstructured) ([]byte, error) {
	if item == nil {
		return nil, nil
	}
	return encodeItem(item)
}

func ownIdentifiers(items []plugin.ResourceIdentifier) []*pluginv1.ResourceIdentifier {
	out := make([]*pluginv1.ResourceIdentifier, 0, len(items))
	for _, i := range items {
		out = append(out, &pluginv1.ResourceIdentifier{Group: i.Group, Resource: i.Resource, Namespace: i.Namespace, Name: i.Name})
	}
	return out
}

func timestampOrNil(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
