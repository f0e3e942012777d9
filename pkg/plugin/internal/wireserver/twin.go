package wireserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// This file serves asynchronous actions whose operations live outside the process as Velero's item
// actions of version 2. Velero has no key for a call: it gets one that is the same for the same
// action, job and object.

// idempotencyKey is the idempotency key of a call that brings none.
func idempotencyKey(name string, job *plugin.Job, item *unstructured.Unstructured) string {
	h := sha256.Sum256([]byte(strings.Join([]string{
		job.UID(), job.Name(), name, item.GroupVersionKind().GroupKind().String(), item.GetNamespace(), item.GetName(),
	}, "\x00")))
	return hex.EncodeToString(h[:16])
}

// movedBackups serves Velero's BackupItemAction v2.
type movedBackups struct {
	velerov2.UnimplementedBackupItemActionServer
	*Server
}

func (a movedBackups) AppliesTo(ctx context.Context, req *velerov2.BackupItemActionAppliesToRequest) (*velerov2.BackupItemActionAppliesToResponse, error) {
	if _, _, err := findExternal[plugin.Action](a.Server, plugin.KindAsyncBackupItemAction, req.GetPlugin()); err != nil {
		return nil, err
	}
	selector, err := appliesTo(ctx, a.Server, plugin.KindAsyncBackupItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &velerov2.BackupItemActionAppliesToResponse{ResourceSelector: selector}, nil
}

func (a movedBackups) Execute(ctx context.Context, req *velerov2.ExecuteRequest) (*velerov2.ExecuteResponse, error) {
	action, h, err := findExternal[plugin.AsyncBackupItemAction](a.Server, plugin.KindAsyncBackupItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	in, matched, err := a.backupInput(ctx, h, action, req.GetItem(), req.GetBackup())
	if err != nil {
		return nil, err
	}
	resp := &velerov2.ExecuteResponse{Item: req.GetItem()}
	if !matched {
		return resp, nil
	}
	out, err := startBackup(ctx, h, action, in, idempotencyKey(h.Name, in.Backup, in.Item))
	if err != nil || out == nil {
		return resp, err
	}
	if out.Item != nil {
		if resp.Item, err = encodeItem(out.Item); err != nil {
			return nil, err
		}
	}
	resp.AdditionalItems, resp.PostOperationItems = wireIdentifiers(out.AdditionalItems), wireIdentifiers(out.PostOperationItems)
	resp.OperationId = out.OperationID
	return resp, nil
}

func (a movedBackups) Progress(ctx context.Context, req *velerov2.BackupItemActionProgressRequest) (*velerov2.BackupItemActionProgressResponse, error) {
	p, err := a.progressOf(ctx, plugin.KindAsyncBackupItemAction, req.GetPlugin(), req.GetOperationId(), req.GetBackup())
	return &velerov2.BackupItemActionProgressResponse{Progress: p}, err
}

func (a movedBackups) Cancel(ctx context.Context, req *velerov2.BackupItemActionCancelRequest) (*emptypb.Empty, error) {
	return a.cancelOperation(ctx, plugin.KindAsyncBackupItemAction, req.GetPlugin(), req.GetOperationId(), req.GetBackup())
}

// executeAsync executes an asynchronous action of a restore.
func (a restoreActions) executeAsync(ctx context.Context, req *velerov2.RestoreItemActionExecuteRequest) (*velerov2.RestoreItemActionExecuteResponse, error) {
	action, h, err := findExternal[plugin.AsyncRestoreItemAction](a.Server, plugin.KindAsyncRestoreItemAction, req.GetPlugin())
	if err != nil {
		return nil, err
	}
	in, matched, err := a.restoreInput(ctx, h, action, req.GetItem(), req.GetItemFromBackup(), req.GetRestore())
	if err != nil {
		return nil, err
	}
	resp := &velerov2.RestoreItemActionExecuteResponse{Item: req.GetItem()}
	if !matched {
		return resp, nil
	}
	out, err := startRestore(ctx, h, action, in, idempotencyKey(h.Name, in.Restore, in.Item))
	if err != nil || out == nil {
		return resp, err
	}
	if out.Item != nil {
		if resp.Item, err = encodeItem(out.Item); err != nil {
			return nil, err
		}
	}
	resp.AdditionalItems, resp.SkipRestore, resp.OperationId = wireIdentifiers(out.AdditionalItems), out.SkipRestore, out.OperationID
	return resp, nil
}

// Progress is about operations of asynchronous actions: others begin none.
func (a restoreActions) Progress(ctx context.Context, req *velerov2.RestoreItemActionProgressRequest) (*velerov2.RestoreItemActionProgressResponse, error) {
	p, err := a.progressOf(ctx, plugin.KindAsyncRestoreItemAction, req.GetPlugin(), req.GetOperationId(), req.GetRestore())
	return &velerov2.RestoreItemActionProgressResponse{Progress: p}, err
}

// Cancel is about operations of asynchronous actions, as Progress.
func (a restoreActions) Cancel(ctx context.Context, req *velerov2.RestoreItemActionCancelRequest) (*emptypb.Empty, error) {
	return a.cancelOperation(ctx, plugin.KindAsyncRestoreItemAction, req.GetPlugin(), req.GetOperationId(), req.GetRestore())
}

// operationOf finds the action of an operation and what it gets to know.
func (s *Server) operationOf(kind plugin.Kind, name, id string, job []byte) (plugin.Operations, plugin.Operation, error) {
	operations, _, err := findExternal[plugin.Operations](s, kind, name)
	if err != nil {
		return nil, plugin.Operation{}, err
	}
	if id == "" {
		return nil, plugin.Operation{}, status.Error(codes.InvalidArgument, "operation_id: missing")
	}
	decoded, err := s.jobs.decodeJob("job", job)
	return operations, plugin.Operation{ID: id, Job: decoded}, err
}

// progressOf reports how an operation goes in Velero's words, which have no cancelled operations
// but failed ones.
func (s *Server) progressOf(ctx context.Context, kind plugin.Kind, name, id string, job []byte) (*velero.OperationProgress, error) {
	operations, op, err := s.operationOf(kind, name, id, job)
	if err != nil {
		return nil, err
	}
	p, err := operations.Progress(ctx, op)
	if err != nil {
		return nil, err
	}
	told := &velero.OperationProgress{
		NCompleted: p.Done, NTotal: p.Total, OperationUnits: p.Unit, Description: p.Description, Started: timestampOrNil(p.Started), Updated: timestampOrNil(p.Updated),
	}
	switch p.State {
	case plugin.Pending, plugin.Running:
	case plugin.Succeeded:
		told.Completed = true
	case plugin.Failed:
		told.Completed, told.Err = true, cmp.Or(p.Error, "failed")
	case plugin.Cancelled:
		told.Completed, told.Err = true, "cancelled"
	default:
		return nil, status.Errorf(codes.Internal, "Progress: the action did not say the state of operation %q", op.ID)
	}
	return told, nil
}

// cancelOperation asks an operation to end. Velero's answer has no place for a refusal: it is an error.
func (s *Server) cancelOperation(ctx context.Context, kind plugin.Kind, name, id string, job []byte) (*emptypb.Empty, error) {
	operations, op, err := s.operationOf(kind, name, id, job)
	if err != nil {
		return nil, err
	}
	accepted, err := operations.Cancel(ctx, op, 0)
	if err == nil && !accepted {
		err = status.Errorf(codes.FailedPrecondition, "operation %q cannot be cancelled", op.ID)
	}
	return &emptypb.Empty{}, err
}
