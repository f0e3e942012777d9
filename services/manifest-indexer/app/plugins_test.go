package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

func TestPluginsAreListedWithTheBuiltInOnes(t *testing.T) {
	t.Parallel()
	list := pluginInfos([]pluginhost.Registration{
		{Kind: pluginhost.KindRestoreItemAction, Name: "a.io/x"}, {Kind: pluginhost.KindRestoreItemActionV2, Name: "a.io/x"},
		{Kind: pluginhost.KindObjectStore, Name: "velero.io/aws"}, {Kind: pluginhost.KindBackupItemAction, Name: "velero.io/pod"},
	})
	require.Equal(t, []velerov1.PluginInfo{
		{Kind: "BackupItemAction", Name: "velero.io/pod"}, // once, though a plugin has its name
		{Kind: "BackupItemAction", Name: "velero.io/pv"},
		{Kind: "BackupItemAction", Name: "velero.io/service-account"},
	}, list[:3])
	require.Contains(t, list, velerov1.PluginInfo{Kind: "ItemBlockAction", Name: "velero.io/pod"})
	require.Contains(t, list, velerov1.PluginInfo{Kind: "RestoreItemAction", Name: "velero.io/change-storage-class"})
	require.Contains(t, list, velerov1.PluginInfo{Kind: "RestoreItemAction", Name: "a.io/x"})
	require.Contains(t, list, velerov1.PluginInfo{Kind: "RestoreItemActionV2", Name: "a.io/x"})
	require.Contains(t, list, velerov1.PluginInfo{Kind: "ObjectStore", Name: "velero.io/aws"})
}
