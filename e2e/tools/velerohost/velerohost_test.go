package velerohost

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt/process"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework/common"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
	riav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/restoreitemaction/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestMain answers as a server's own executable: Velero starts it for the plugins that are built
// in. There are none here.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run-plugins" {
		framework.NewServer().Serve()
		return
	}
	os.Exit(m.Run())
}

func deployment(status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "status": status,
		"metadata": map[string]any{"name": "web", "namespace": "shop", "annotations": map[string]any{"example.com/config": "settings"}},
	}}
}

// load builds the example into a plugin directory and discovers what is there, as a server does
// when it starts.
func load(t *testing.T) (process.Registry, clientmgmt.Manager) {
	t.Helper()
	directory := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(directory, "example"), ".")
	build.Dir = "../../../pkg/plugin/example"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	log := logrus.New()
	log.SetOutput(t.Output())
	registry := process.NewRegistry(directory, log, logrus.InfoLevel)
	require.NoError(t, registry.DiscoverPlugins())
	manager := clientmgmt.NewManager(log, logrus.InfoLevel, registry)
	t.Cleanup(manager.CleanupClients)
	return registry, manager
}

func TestVeleroLoadsTheStarter(t *testing.T) {
	registry, manager := load(t)
	listed := map[common.PluginKind][]string{}
	for _, kind := range []common.PluginKind{
		common.PluginKindBackupItemAction, common.PluginKindBackupItemActionV2, common.PluginKindRestoreItemAction, common.PluginKindRestoreItemActionV2,
		common.PluginKindDeleteItemAction, common.PluginKindItemBlockAction, common.PluginKindObjectStore, common.PluginKindVolumeSnapshotter,
	} {
		for _, p := range registry.List(kind) {
			listed[kind] = append(listed[kind], p.Name)
		}
		slices.Sort(listed[kind])
	}
	require.Equal(t, map[common.PluginKind][]string{
		common.PluginKindBackupItemAction: {"example.com/note-replicas"}, common.PluginKindRestoreItemActionV2: {"example.com/config-first", "example.com/hand-over"},
		common.PluginKindBackupItemActionV2: {"example.com/hand-over", "example.com/note-replicas"}, // Velero adapts the first version
	}, listed, "the asynchronous action in its process is none of Velero's")

	backups, err := manager.GetBackupItemActionsV2()
	require.NoError(t, err)
	require.Len(t, backups, 2)
	backups = backups[slices.IndexFunc(backups, func(a biav2.BackupItemAction) bool { return a.Name() == "example.com/note-replicas" }):]
	selector, err := backups[0].AppliesTo()
	require.NoError(t, err)
	require.Equal(t, []string{"deployments.apps"}, selector.IncludedResources)
	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "velero"}}
	item, _, operation, _, err := backups[0].Execute(deployment(map[string]any{"readyReplicas": int64(3)}), backup)
	require.NoError(t, err)
	require.Empty(t, operation)
	require.Equal(t, "3", item.(*unstructured.Unstructured).GetAnnotations()["example.com/ready-replicas"])
	// Velero has no expressions, so the plugin's own process evaluates it.
	item, _, _, _, err = backups[0].Execute(deployment(map[string]any{}), backup)
	require.NoError(t, err)
	require.NotContains(t, item.(*unstructured.Unstructured).GetAnnotations(), "example.com/ready-replicas")
	_, _, _, _, err = backups[0].Execute(deployment(map[string]any{"readyReplicas": "many"}), backup)
	require.ErrorContains(t, err, "status.readyReplicas")

	restores, err := manager.GetRestoreItemActionsV2()
	require.NoError(t, err)
	require.Len(t, restores, 2)
	restores = restores[slices.IndexFunc(restores, func(a riav2.RestoreItemAction) bool { return a.Name() == "example.com/config-first" }):]
	restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "velero"}}
	result, err := restores[0].Execute(&velero.RestoreItemActionExecuteInput{Item: deployment(nil), ItemFromBackup: deployment(nil), Restore: restore})
	require.NoError(t, err)
	require.Len(t, result.AdditionalItems, 1)
	require.Equal(t, "configmaps shop/settings", result.AdditionalItems[0].GroupResource.String()+" "+result.AdditionalItems[0].Namespace+"/"+result.AdditionalItems[0].Name)
	ready, err := restores[0].AreAdditionalItemsReady(result.AdditionalItems, restore)
	require.NoError(t, err)
	require.True(t, ready)
}

// TestVeleroFollowsOperationsOfTheStarter drives a backup's and a restore's asynchronous action as
// Velero does: each phase of a job has clients, and so plugin processes, of its own.
func TestVeleroFollowsOperationsOfTheStarter(t *testing.T) {
	exchange := t.TempDir()
	t.Setenv("EXAMPLE_EXCHANGE", exchange)
	registry, manager := load(t)
	claim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "data", "namespace": "shop"},
	}}
	works := func(id, text string) {
		t.Helper()
		require.FileExists(t, filepath.Join(exchange, id+".json"), "the request is there for whoever does the work")
		require.NoError(t, os.WriteFile(filepath.Join(exchange, id+".json"), []byte(text), 0o600))
	}

	action, err := manager.GetBackupItemActionV2("example.com/hand-over")
	require.NoError(t, err)
	selector, err := action.AppliesTo()
	require.NoError(t, err)
	require.Equal(t, []string{"persistentvolumeclaims"}, selector.IncludedResources)
	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "velero", UID: "u"}}
	item, _, saved, _, err := action.Execute(claim, backup)
	require.NoError(t, err)
	require.NotEmpty(t, saved)
	require.Equal(t, "data", item.(*unstructured.Unstructured).GetName())
	progress, err := action.Progress(saved, backup)
	require.NoError(t, err)
	require.False(t, progress.Completed)
	manager.CleanupClients()

	later := clientmgmt.NewManager(logrus.New(), logrus.InfoLevel, registry)
	t.Cleanup(later.CleanupClients)
	works(saved, `{"claim":"shop/data","bytes":3,"of":4}`)
	action, err = later.GetBackupItemActionV2("example.com/hand-over")
	require.NoError(t, err)
	progress, err = action.Progress(saved, backup)
	require.NoError(t, err)
	require.False(t, progress.Completed)
	require.Equal(t, []any{int64(3), int64(4), "Bytes", "moving shop/data"}, []any{progress.NCompleted, progress.NTotal, progress.OperationUnits, progress.Description})
	works(saved, `{"claim":"shop/data","state":"Done"}`)
	progress, err = action.Progress(saved, backup)
	require.NoError(t, err)
	require.True(t, progress.Completed)
	require.Empty(t, progress.Err)
	_, err = action.Progress("other", backup)
	require.ErrorContains(t, err, "no such operation")

	restoring, err := later.GetRestoreItemActionV2("example.com/hand-over")
	require.NoError(t, err)
	restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "velero", UID: "v"}}
	input := &velero.RestoreItemActionExecuteInput{Item: claim, ItemFromBackup: claim, Restore: restore}
	result, err := restoring.Execute(input)
	require.NoError(t, err)
	require.NotEmpty(t, result.OperationID)
	works(result.OperationID, `{"claim":"shop/data","state":"Failed","error":"no space left"}`)
	progress, err = restoring.Progress(result.OperationID, restore)
	require.NoError(t, err)
	require.True(t, progress.Completed)
	require.Equal(t, "no space left", progress.Err)

	restore.UID = "w"
	result, err = restoring.Execute(input)
	require.NoError(t, err)
	require.NoError(t, restoring.Cancel(result.OperationID, restore))
	progress, err = restoring.Progress(result.OperationID, restore)
	require.NoError(t, err)
	require.True(t, progress.Completed)
	require.Equal(t, "cancelled", progress.Err)
}
