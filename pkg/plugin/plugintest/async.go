package plugintest

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
)

// AsyncBackupItemAction returns a client of the action of that name. Outputs have no item if the
// action left it alone.
func (p *Process) AsyncBackupItemAction(name string) plugin.AsyncBackupItemAction {
	return asyncBackup{operations{client{p.conn, plugin.KindAsyncBackupItemAction, name}}}
}

type asyncBackup struct{ operations }

func (a asyncBackup) Start(ctx context.Context, in *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	item, backup, err := backupBytes(&in.BackupInput)
	if err != nil {
		return nil, err
	}
	resp, err := a.asyncClient().StartBackup(ctx, &pluginv1.StartBackupRequest{Plugin: a.name, Item: item, Backup: backup, IdempotencyKey: in.IdempotencyKey})
	if err != nil {
		return nil, err
	}
	out := &plugin.AsyncBackupOutput{
		OperationID: resp.GetOperationId(), InProcess: resp.GetInProcess(),
		AdditionalItems: fromWire(resp.GetAdditionalItems()), PostOperationItems: fromWire(resp.GetPostOperationItems()),
	}
	if len(resp.GetItem()) > 0 {
		out.Item, err = decodeObject(resp.GetItem())
	}
	return out, err
}

// AsyncRestoreItemAction returns a client of the action of that name. Outputs have no item if the
// action left it alone.
func (p *Process) AsyncRestoreItemAction(name string) plugin.AsyncRestoreItemAction {
	return asyncRestore{operations{client{p.conn, plugin.KindAsyncRestoreItemAction, name}}}
}

type asyncRestore struct{ operations }

func (a asyncRestore) Start(ctx context.Context, in *plugin.AsyncRestoreInput) (*plugin.AsyncRestoreOutput, error) {
	item, stored, restore, err := restoreBytes(&in.RestoreInput)
	if err != nil {
		return nil, err
	}
	resp, err := a.asyncClient().StartRestore(ctx, &pluginv1.StartRestoreRequest{
		Plugin: a.name, Item: item, ItemFromBackup: stored, Restore: restore, IdempotencyKey: in.IdempotencyKey,
	})
	if err != nil {
		return nil, err
	}
	out := &plugin.AsyncRestoreOutput{
		OperationID: resp.GetOperationId(), InProcess: resp.GetInProcess(),
		AdditionalItems: fromWire(resp.GetAdditionalItems()), SkipRestore: resp.GetSkipRestore(),
	}
	if len(resp.GetItem()) > 0 {
		out.Item, err = decodeObject(resp.GetItem())
	}
	return out, err
}

// operations is what the clients of both asynchronous kinds share.
type operations struct{ client }

func (o operations) asyncClient() pluginv1.AsyncActionServiceClient {
	return pluginv1.NewAsyncActionServiceClient(o.conn)
}

func (o operations) Progress(ctx context.Context, op plugin.Operation) (plugin.Progress, error) {
	resp, err := o.asyncClient().Progress(ctx, &pluginv1.ProgressRequest{Kind: wireKinds[o.kind], Plugin: o.name, OperationId: op.ID, Job: op.Job.JSON()})
	if err != nil {
		return plugin.Progress{}, err
	}
	p := resp.GetProgress()
	return plugin.Progress{
		State: plugin.State(p.GetState()), Error: p.GetError(), Done: p.GetDone(), Total: p.GetTotal(), Unit: p.GetUnit(),
		Description: p.GetDescription(), Started: timeOrZero(p.GetStarted()), Updated: timeOrZero(p.GetUpdated()),
	}, nil
}

func (o operations) Cancel(ctx context.Context, op plugin.Operation, grace time.Duration) (bool, error) {
	resp, err := o.asyncClient().Cancel(ctx, &pluginv1.CancelRequest{
		Kind: wireKinds[o.kind], Plugin: o.name, OperationId: op.ID, Job: op.Job.JSON(), Grace: durationpb.New(grace),
	})
	return resp.GetAccepted(), err
}

func (o operations) Logs(ctx context.Context, op plugin.Operation, options plugin.LogOptions) iter.Seq2[plugin.LogLine, error] {
	return func(yield func(plugin.LogLine, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		defer stop() // also when the caller has read enough
		req := &pluginv1.LogsRequest{Kind: wireKinds[o.kind], Plugin: o.name, OperationId: op.ID, Job: op.Job.JSON(), Follow: options.Follow}
		if !options.Since.IsZero() {
			req.Since = timestamppb.New(options.Since)
		}
		stream, err := o.asyncClient().Logs(ctx, req)
		if err != nil {
			yield(plugin.LogLine{}, err)
			return
		}
		for {
			line, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(plugin.LogLine{}, err)
				return
			}
			if !yield(plugin.LogLine{Time: timeOrZero(line.GetTime()), Level: line.GetLevel(), Message: line.GetMessage(), Fields: line.GetFields()}, nil) {
				return
			}
		}
	}
}

func timeOrZero(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
