package plugintest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/plugintest"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
)

var begun = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func startMovers(t *testing.T) *plugintest.Process {
	t.Helper()
	m := newMover(begun)
	for i, level := range []string{"info", "error"} {
		m.lines = append(m.lines, plugin.LogLine{Time: begun.Add(time.Duration(i) * time.Second), Level: level, Message: "line", Fields: map[string]string{"volume": "v"}})
	}
	return plugintest.Start(t, (&plugin.Registry{}).
		AsyncBackupItemAction("a.io/move", []string{"persistentvolumeclaims"}, constructorOf[plugin.AsyncBackupItemAction](backupMover{m})).
		AsyncRestoreItemAction("a.io/move", []string{"persistentvolumeclaims"}, constructorOf[plugin.AsyncRestoreItemAction](restoreMover{m})))
}

const claim = `{"kind":"PersistentVolumeClaim","metadata":{"name":"data","namespace":"ns"}}`

func TestAsyncBackupRunsItsCourse(t *testing.T) {
	action := startMovers(t).AsyncBackupItemAction("a.io/move")
	input := &plugin.AsyncBackupInput{BackupInput: plugin.BackupInput{Item: plugintest.Object(t, claim), Backup: plugintest.Job(t, "b")}, IdempotencyKey: "k1"}
	out, err := action.Start(t.Context(), input)
	require.NoError(t, err)
	require.Equal(t, "op-1", out.OperationID)
	require.True(t, out.InProcess)
	require.Equal(t, map[string]string{"moved": "b"}, out.Item.GetLabels())
	require.Equal(t, []plugin.ResourceIdentifier{{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshots", Namespace: "ns", Name: "s"}}, out.AdditionalItems)
	require.Equal(t, []plugin.ResourceIdentifier{{Resource: "persistentvolumeclaims", Namespace: "ns", Name: "data"}}, out.PostOperationItems)

	again, err := action.Start(t.Context(), input)
	require.NoError(t, err)
	require.Equal(t, "op-1", again.OperationID, "the same key is the same operation")

	op := plugin.Operation{ID: "op-1", Job: plugintest.Job(t, "b")}
	progress, err := action.Progress(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, plugin.Progress{
		State: plugin.Running, Done: 3, Total: 10, Unit: "Bytes", Description: "copying", Started: begun, Updated: begun.Add(time.Second),
	}, progress)
	accepted, err := action.Cancel(t.Context(), op, time.Minute)
	require.NoError(t, err)
	require.True(t, accepted)
	progress, err = action.Progress(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, plugin.Progress{State: plugin.Cancelled, Description: "within 1m0s"}, progress)

	_, err = action.Progress(t.Context(), plugin.Operation{ID: "op-9", Job: op.Job})
	require.Equal(t, codes.NotFound, status.Code(err))
	require.ErrorContains(t, err, "op-9 of b")
	require.Len(t, status.Convert(err).Details(), 1, "what else is not found does not say so")
	info, ok := status.Convert(err).Details()[0].(*errdetails.ErrorInfo)
	require.True(t, ok)
	require.Equal(t, "OPERATION_UNKNOWN", info.GetReason())
	require.Equal(t, "holdfast.io", info.GetDomain())
}

func TestAsyncStartMayBeginNothing(t *testing.T) {
	out, err := startMovers(t).AsyncBackupItemAction("a.io/move").Start(t.Context(), &plugin.AsyncBackupInput{
		BackupInput: plugin.BackupInput{Item: plugintest.Object(t, `{"kind":"PersistentVolumeClaim","metadata":{"name":"skip"}}`), Backup: plugintest.Job(t, "b")}, IdempotencyKey: "k",
	})
	require.NoError(t, err)
	require.Equal(t, &plugin.AsyncBackupOutput{}, out)
}

func TestAsyncRestore(t *testing.T) {
	out, err := startMovers(t).AsyncRestoreItemAction("a.io/move").Start(t.Context(), &plugin.AsyncRestoreInput{
		RestoreInput: plugin.RestoreInput{
			Item: plugintest.Object(t, claim), Restore: plugintest.Job(t, "r"),
			ItemFromBackup: plugintest.Object(t, `{"kind":"PersistentVolumeClaim","metadata":{"labels":{"skip":"yes"}}}`),
		}, IdempotencyKey: "k",
	})
	require.NoError(t, err)
	require.Equal(t, &plugin.AsyncRestoreOutput{OperationID: "op-1", SkipRestore: true}, out)
}

func TestLogsOfAnOperation(t *testing.T) {
	action, op := startMovers(t).AsyncBackupItemAction("a.io/move"), plugin.Operation{ID: "op-1", Job: plugintest.Job(t, "b")}
	read := func(ctx context.Context, options plugin.LogOptions, limit int) (levels []string, last error) {
		for line, err := range action.Logs(ctx, op, options) {
			if err != nil {
				return levels, err
			}
			require.Equal(t, "line", line.Message)
			require.Equal(t, map[string]string{"volume": "v"}, line.Fields)
			if levels = append(levels, line.Level); len(levels) == limit {
				break
			}
		}
		return levels, nil
	}
	levels, err := read(t.Context(), plugin.LogOptions{}, 9)
	require.NoError(t, err)
	require.Equal(t, []string{"info", "error"}, levels)
	levels, err = read(t.Context(), plugin.LogOptions{Since: begun.Add(time.Second)}, 9)
	require.NoError(t, err)
	require.Equal(t, []string{"error"}, levels)
	levels, err = read(t.Context(), plugin.LogOptions{Follow: true}, 2) // ends because it is not read on
	require.NoError(t, err)
	require.Equal(t, []string{"info", "error"}, levels)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = read(ctx, plugin.LogOptions{Follow: true}, 9)
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
}

func TestBadAsyncRequestsNameTheField(t *testing.T) {
	service := pluginv1.NewAsyncActionServiceClient(startMovers(t).Conn())
	kind := pluginv1.Kind_KIND_ASYNC_BACKUP_ITEM_ACTION
	_, err := service.StartBackup(t.Context(), &pluginv1.StartBackupRequest{Plugin: "a.io/move", Item: []byte(claim), Backup: []byte(`{}`)})
	require.ErrorContains(t, err, "idempotency_key: missing")
	_, err = service.StartRestore(t.Context(), &pluginv1.StartRestoreRequest{Plugin: "a.io/move", IdempotencyKey: "k", Item: []byte(claim), ItemFromBackup: []byte("x")})
	require.ErrorContains(t, err, "itemFromBackup:")
	for want, req := range map[string]*pluginv1.ProgressRequest{
		"kind: KIND_UNSPECIFIED is none":          {},
		"kind: BackupItemAction has no operation": {Kind: pluginv1.Kind_KIND_BACKUP_ITEM_ACTION},
		"operation_id: missing":                   {Kind: kind, Plugin: "a.io/move", Job: []byte(`{}`)},
		"job: no Backup":                          {Kind: kind, Plugin: "a.io/move", OperationId: "x"},
		`is called "a.io/none"`:                   {Kind: kind, Plugin: "a.io/none"},
	} {
		_, err := service.Progress(t.Context(), req)
		require.ErrorContains(t, err, want)
	}
}

type undecided struct {
	plugin.Everything
	plugin.NoCancel
	plugin.NoLogs
}

func (undecided) Start(context.Context, *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	return nil, nil
}

func (undecided) Progress(context.Context, plugin.Operation) (plugin.Progress, error) {
	return plugin.Progress{}, nil
}

func TestProgressHasToSayTheState(t *testing.T) {
	process := plugintest.Start(t, (&plugin.Registry{}).AsyncBackupItemAction("a.io/x", []string{"*"}, constructorOf[plugin.AsyncBackupItemAction](undecided{})))
	op := plugin.Operation{ID: "o", Job: plugintest.Job(t, "b")}
	_, err := process.AsyncBackupItemAction("a.io/x").Progress(t.Context(), op)
	require.Equal(t, codes.Internal, status.Code(err))
	accepted, err := process.AsyncBackupItemAction("a.io/x").Cancel(t.Context(), op, 0)
	require.NoError(t, err)
	require.False(t, accepted, "the default cannot cancel")
	for range process.AsyncBackupItemAction("a.io/x").Logs(t.Context(), op, plugin.LogOptions{}) {
		t.Fatal("the default has no lines")
	}
}
