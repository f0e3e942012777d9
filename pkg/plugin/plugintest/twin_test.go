package plugintest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/plugintest"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
	velerov2 "github.com/holdfast-io/holdfast/pkg/plugin/wire/velero/v2"
)

// outsideMover is a mover whose operations live outside the process.
type outsideMover struct{ *mover }

func (m outsideMover) Start(ctx context.Context, in *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	out, err := backupMover(m).Start(ctx, in)
	if out != nil {
		out.InProcess = in.Item.GetName() == "inside"
	}
	return out, err
}

// An asynchronous action whose operations live outside the process is one of Velero's version 2 too;
// others are not.
func TestVelerosProtocolServesOperationsOutsideTheProcess(t *testing.T) {
	m, own := newMover(begun), newMover(begun)
	process := plugintest.Start(t, (&plugin.Registry{}).
		AsyncBackupItemAction("a.io/move", []string{"persistentvolumeclaims"}, constructorOf[plugin.AsyncBackupItemAction](outsideMover{m}), plugin.OutOfProcess()).
		AsyncRestoreItemAction("a.io/move", []string{"persistentvolumeclaims"}, constructorOf[plugin.AsyncRestoreItemAction](restoreMover{m}), plugin.OutOfProcess()).
		AsyncBackupItemAction("a.io/own", []string{"persistentvolumeclaims"}, constructorOf[plugin.AsyncBackupItemAction](backupMover{own})))
	list, err := velero.NewPluginListerClient(process.Conn()).ListPlugins(t.Context(), &velero.Empty{})
	require.NoError(t, err)
	var listed []string
	for _, p := range list.GetPlugins() {
		listed = append(listed, p.GetKind()+" "+p.GetName())
	}
	require.ElementsMatch(t, []string{"BackupItemActionV2 a.io/move", "RestoreItemActionV2 a.io/move"}, listed)

	backups, restores := velerov2.NewBackupItemActionClient(process.Conn()), velerov2.NewRestoreItemActionClient(process.Conn())
	applies, err := backups.AppliesTo(t.Context(), &velerov2.BackupItemActionAppliesToRequest{Plugin: "a.io/move"})
	require.NoError(t, err)
	require.Equal(t, []string{"persistentvolumeclaims"}, applies.GetResourceSelector().GetIncludedResources())
	_, err = backups.AppliesTo(t.Context(), &velerov2.BackupItemActionAppliesToRequest{Plugin: "a.io/own"})
	require.Equal(t, codes.NotFound, status.Code(err))

	job := []byte(`{"metadata":{"name":"b","uid":"u"}}`)
	execute := func(item string) (*velerov2.ExecuteResponse, error) {
		return backups.Execute(t.Context(), &velerov2.ExecuteRequest{Plugin: "a.io/move", Item: []byte(item), Backup: job})
	}
	began, err := execute(claim)
	require.NoError(t, err)
	require.Equal(t, "op-1", began.GetOperationId())
	require.Contains(t, string(began.GetItem()), `"moved":"b"`)
	require.Len(t, began.GetAdditionalItems(), 1)
	require.Len(t, began.GetPostOperationItems(), 1)
	again, err := execute(claim)
	require.NoError(t, err)
	require.Equal(t, "op-1", again.GetOperationId(), "the same object of the same backup has the same key")
	other, err := execute(`{"kind":"PersistentVolumeClaim","metadata":{"name":"other","namespace":"ns"}}`)
	require.NoError(t, err)
	require.Equal(t, "op-2", other.GetOperationId())
	none, err := execute(`{"kind":"PersistentVolumeClaim","metadata":{"name":"skip"}}`)
	require.NoError(t, err)
	require.Empty(t, none.GetOperationId())
	require.Contains(t, string(none.GetItem()), "skip", "the object comes back as it was")
	_, err = execute(`{"kind":"PersistentVolumeClaim","metadata":{"name":"inside"}}`)
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "it said that none lives in the process")
	require.ErrorContains(t, err, "InProcess")

	progress := func(id string) *velero.OperationProgress {
		p, err := backups.Progress(t.Context(), &velerov2.BackupItemActionProgressRequest{Plugin: "a.io/move", OperationId: id, Backup: job})
		require.NoError(t, err)
		return p.GetProgress()
	}
	p := progress("op-1")
	require.False(t, p.GetCompleted())
	require.Equal(t, []any{int64(3), int64(10), "Bytes", "copying"}, []any{p.GetNCompleted(), p.GetNTotal(), p.GetOperationUnits(), p.GetDescription()})
	require.Equal(t, begun, p.GetStarted().AsTime())
	_, err = backups.Cancel(t.Context(), &velerov2.BackupItemActionCancelRequest{Plugin: "a.io/move", OperationId: "op-1", Backup: job})
	require.NoError(t, err)
	p = progress("op-1")
	require.True(t, p.GetCompleted())
	require.Equal(t, "cancelled", p.GetErr(), "what was cancelled has not succeeded")
	_, err = backups.Progress(t.Context(), &velerov2.BackupItemActionProgressRequest{Plugin: "a.io/move", OperationId: "op-9", Backup: job})
	require.Equal(t, codes.NotFound, status.Code(err))
	_, err = backups.Progress(t.Context(), &velerov2.BackupItemActionProgressRequest{Plugin: "a.io/move", Backup: job})
	require.Equal(t, codes.InvalidArgument, status.Code(err))

	job = []byte(`{"metadata":{"name":"r","uid":"v"}}`)
	restored, err := restores.Execute(t.Context(), &velerov2.RestoreItemActionExecuteRequest{
		Plugin: "a.io/move", Item: []byte(claim), Restore: job, ItemFromBackup: []byte(`{"kind":"PersistentVolumeClaim","metadata":{"name":"data","labels":{"skip":"x"}}}`),
	})
	require.NoError(t, err)
	require.Equal(t, "op-4", restored.GetOperationId())
	require.True(t, restored.GetSkipRestore())
	ready, err := restores.AreAdditionalItemsReady(t.Context(), &velerov2.RestoreItemActionItemsReadyRequest{Plugin: "a.io/move", Restore: job})
	require.NoError(t, err)
	require.True(t, ready.GetReady())
	_, err = restores.Cancel(t.Context(), &velerov2.RestoreItemActionCancelRequest{Plugin: "a.io/move", OperationId: "op-4", Restore: job})
	require.NoError(t, err)
	told, err := restores.Progress(t.Context(), &velerov2.RestoreItemActionProgressRequest{Plugin: "a.io/move", OperationId: "op-4", Restore: job})
	require.NoError(t, err)
	require.True(t, told.GetProgress().GetCompleted())
}
