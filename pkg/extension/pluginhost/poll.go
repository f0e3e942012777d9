package pluginhost

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// maxProgress bounds the answer about one operation in bytes.
const maxProgress = 2 << 20

// callAbout is a call about the operation.
func callAbout(c pluginCall, op action.Operation) pluginCall {
	c.operation = op
	return c
}

// Progress calls the plugin.
func (o *Operations) Progress(ctx context.Context, op action.Operation, job []byte) (r action.Progress, err error) {
	p, err := o.pluginOf(op)
	if err != nil {
		return r, err
	}
	err = p.worker.callProcess(ctx, callAbout(p.newQuery("Progress"), op), func(ctx context.Context, at *process) error {
		r, err = operationProgress(ctx, at.conn, op, job, grpc.MaxCallRecvMsgSize(min(maxProgress, p.worker.spec.limits.Answer)))
		return err
	})
	if err == nil && r.Done || errors.Is(err, action.ErrUnknownOperation) {
		p.worker.removeOperation(op)
	}
	return r, err
}

func operationProgress(ctx context.Context, conn grpc.ClientConnInterface, op action.Operation, job []byte, bound grpc.CallOption) (action.Progress, error) {
	switch kind := Kind(op.Kind); kind {
	case KindBackupItemActionV2:
		answer, err := velerov2.NewBackupItemActionClient(conn).Progress(ctx, &velerov2.BackupItemActionProgressRequest{
			Plugin: op.Action, OperationId: op.ID, Backup: job}, bound)
		if err != nil {
			return action.Progress{}, err
		}
		return progressOf(answer.GetProgress())
	case KindRestoreItemActionV2:
		answer, err := velerov2.NewRestoreItemActionClient(conn).Progress(ctx, &velerov2.RestoreItemActionProgressRequest{
			Plugin: op.Action, OperationId: op.ID, Restore: job}, bound)
		if err != nil {
			return action.Progress{}, err
		}
		return progressOf(answer.GetProgress())
	default:
		answer, err := pluginv1.NewAsyncActionServiceClient(conn).Progress(ctx, &pluginv1.ProgressRequest{
			Kind: contractKind(kind), Plugin: op.Action, OperationId: op.ID, Job: job}, bound)
		if err != nil {
			return action.Progress{}, err
		}
		return ownProgressOf(answer.GetProgress())
	}
}

// Cancel calls the plugin. In Velero's protocol it is accepted where it does not fail.
func (o *Operations) Cancel(ctx context.Context, op action.Operation, job []byte, grace time.Duration) (accepted bool, err error) {
	p, err := o.pluginOf(op)
	if err != nil {
		return false, err
	}
	err = p.worker.callProcess(ctx, callAbout(p.newShortCall("Cancel"), op), func(ctx context.Context, at *process) error {
		accepted, err = cancelOperation(ctx, at.conn, op, job, grace)
		return err
	})
	return accepted && err == nil, err
}

func cancelOperation(ctx context.Context, conn grpc.ClientConnInterface, op action.Operation, job []byte, grace time.Duration) (bool, error) {
	switch kind := Kind(op.Kind); kind {
	case KindBackupItemActionV2:
		_, err := velerov2.NewBackupItemActionClient(conn).Cancel(ctx, &velerov2.BackupItemActionCancelRequest{
			Plugin: op.Action, OperationId: op.ID, Backup: job})
		return err == nil, err
	case KindRestoreItemActionV2:
		_, err := velerov2.NewRestoreItemActionClient(conn).Cancel(ctx, &velerov2.RestoreItemActionCancelRequest{
			Plugin: op.Action, OperationId: op.ID, Restore: job})
		return err == nil, err
	default:
		r := &pluginv1.CancelRequest{Kind: contractKind(kind), Plugin: op.Action, OperationId: op.ID, Job: job}
		if grace > 0 {
			r.Grace = durationpb.New(grace)
		}
		answer, err := pluginv1.NewAsyncActionServiceClient(conn).Cancel(ctx, r)
		return answer.GetAccepted(), err
	}
}
