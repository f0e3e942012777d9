package layout_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// TestVeleroNames spells out Velero 1.18's names: they must not change with this code.
func TestVeleroNames(t *testing.T) {
	for got, want := range map[string]string{
		layout.BackupMetadata("b"):            "backups/b/velero-backup.json",
		layout.BackupTarball("b"):             "backups/b/b.tar.gz",
		layout.BackupLog("b"):                 "backups/b/b-logs.gz",
		layout.BackupResults("b"):             "backups/b/b-results.gz",
		layout.BackupResourceList("b"):        "backups/b/b-resource-list.json.gz",
		layout.BackupVolumeInfo("b"):          "backups/b/b-volumeinfo.json.gz",
		layout.BackupItemOperations("b"):      "backups/b/b-itemoperations.json.gz",
		layout.BackupVolumeSnapshots("b"):     "backups/b/b-volumesnapshots.json.gz",
		layout.BackupPodVolumeBackups("b"):    "backups/b/b-podvolumebackups.json.gz",
		layout.BackupCSISnapshots("b"):        "backups/b/b-csi-volumesnapshots.json.gz",
		layout.BackupCSISnapshotContents("b"): "backups/b/b-csi-volumesnapshotcontents.json.gz",
		layout.RestoreLog("r"):                "restores/r/restore-r-logs.gz",
		layout.RestoreResults("r"):            "restores/r/restore-r-results.gz",
		layout.RestoreResourceList("r"):       "restores/r/restore-r-resource-list.json.gz",
		layout.RestoreItemOperations("r"):     "restores/r/restore-r-itemoperations.json.gz",
		layout.RestoreVolumeInfo("r"):         "restores/r/r-volumeinfo.json.gz",
	} {
		require.Equal(t, want, got)
	}
}

func TestForDownload(t *testing.T) {
	for kind, want := range map[string]string{
		"BackupLog": layout.BackupLog("x"), "BackupContents": layout.BackupTarball("x"), "BackupVolumeSnapshots": layout.BackupVolumeSnapshots("x"),
		"BackupItemOperations": layout.BackupItemOperations("x"), "BackupResourceList": layout.BackupResourceList("x"),
		"BackupResults": layout.BackupResults("x"), "BackupVolumeInfos": layout.BackupVolumeInfo("x"),
		"CSIBackupVolumeSnapshots": layout.BackupCSISnapshots("x"), "CSIBackupVolumeSnapshotContents": layout.BackupCSISnapshotContents("x"),
		"RestoreLog": layout.RestoreLog("x"), "RestoreResults": layout.RestoreResults("x"), "RestoreResourceList": layout.RestoreResourceList("x"),
		"RestoreItemOperations": layout.RestoreItemOperations("x"), "RestoreVolumeInfo": layout.RestoreVolumeInfo("x"),
	} {
		got, err := layout.ForDownload(kind, "x")
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, strings.HasPrefix(kind, "Restore"), layout.IsRestoreKind(kind), kind)
		require.NoError(t, objectstore.CheckKey(got))
	}
	_, err := layout.ForDownload("BackupSecrets", "x")
	require.ErrorIs(t, err, layout.ErrUnknownKind)
	for _, name := range []string{"", ".", "..", "../x", "a/b", "a b", "ü", strings.Repeat("n", 254)} {
		_, err = layout.ForDownload("BackupLog", name)
		require.ErrorIs(t, err, layout.ErrInvalidName, name)
	}
}

func TestOwnNamesLieInsideTheBackup(t *testing.T) {
	part := layout.Part("b", "uid", 3, "u-7", 1, 2)
	require.Equal(t, "backups/b/parts/uid/3-u-7-1-2", part)
	require.Equal(t, part+".sidecar", layout.Sidecar(part))
	require.Less(t, layout.Checkpoint("b", "uid", 9, 10), layout.Checkpoint("b", "uid", 10, 1), "listed in order")
	for _, key := range []string{part, layout.Checkpoint("b", "uid", 1, 2), layout.Composition("b", "uid"), layout.Failure("b", "uid"), layout.BackupManifest("b"), layout.OwnerFile("b")} {
		require.NoError(t, objectstore.CheckKey(key))
		name, ok := layout.BackupName(key)
		require.True(t, ok)
		require.Equal(t, "b", name)
	}
	name, ok := layout.RestoreName(layout.RestoreRecordsPrefix("r") + "1")
	require.True(t, ok)
	require.Equal(t, "r", name)
	for _, key := range []string{"backups/file", "restores/r/x", "backups//x", ""} {
		_, ok = layout.BackupName(key)
		require.False(t, ok, key)
	}
}

func TestOwnerFile(t *testing.T) {
	data, err := layout.Owner{BackupUID: "b", ClusterUID: "c"}.Encode()
	require.NoError(t, err)
	got, err := layout.DecodeOwner(data)
	require.NoError(t, err)
	require.Equal(t, layout.Owner{BackupUID: "b", ClusterUID: "c"}, got)
	for _, bad := range []string{"", "{", "{}", `{"backupUID":1}`, "null"} {
		_, err = layout.DecodeOwner([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestRestoreOwnerFile(t *testing.T) {
	require.Equal(t, "restores/r/records/uid/owner.json", layout.RestoreOwnerFile("r", "uid"))
	require.True(t, strings.HasPrefix(layout.RestoreOwnerFile("r", "uid"), layout.RestoreRecords("r", "uid")))
	require.NoError(t, objectstore.CheckKey(layout.RestoreOwnerFile("r", "uid")))
	data, err := layout.RestoreOwner{RestoreUID: "r", ClusterUID: "c"}.Encode()
	require.NoError(t, err)
	require.JSONEq(t, `{"restoreUID":"r","clusterUID":"c"}`, string(data))
	got, err := layout.DecodeRestoreOwner(data)
	require.NoError(t, err)
	require.Equal(t, layout.RestoreOwner{RestoreUID: "r", ClusterUID: "c"}, got)
	for _, bad := range []string{"", "{", "{}", `{"restoreUID":1}`, "null", `{"restoreUID":"r"}`, `{"clusterUID":"c"}`} {
		_, err = layout.DecodeRestoreOwner([]byte(bad))
		require.ErrorContains(t, err, "restore owner file: ", bad)
	}
}
