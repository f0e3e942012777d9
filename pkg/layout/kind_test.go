package layout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/layout"
)

func TestEveryObjectHasAKind(t *testing.T) {
	part := layout.Part("b", "uid", 3, "pods", 0, 1)
	for key, want := range map[string]string{
		layout.BackupMetadata("b"):              "metadata",
		layout.OwnerFile("b"):                   "owner",
		layout.BackupTarball("b"):               "tarball",
		layout.BackupTarball("b-logs.gz"):       "tarball",
		layout.BackupManifest("b"):              "manifest",
		layout.PlanHeader("p"):                  "plan",
		layout.PlanRows("p"):                    "plan",
		layout.BackupRebuiltManifest("b"):       "manifest",
		layout.BackupLog("b"):                   "log",
		layout.BackupResults("b"):               "results",
		layout.BackupResourceList("b"):          "resource list",
		layout.BackupVolumeInfo("b"):            "volume info",
		layout.BackupItemOperations("b"):        "item operations",
		layout.BackupVolumeSnapshots("b"):       "volume snapshots",
		layout.BackupPodVolumeBackups("b"):      "pod volume backups",
		layout.BackupCSISnapshots("b"):          "CSI snapshots",
		layout.BackupCSISnapshotContents("b"):   "CSI snapshot contents",
		part:                                    "part",
		layout.Sidecar(part):                    "sidecar",
		layout.Checkpoint("b", "uid", 1, 2):     "checkpoint",
		layout.CheckpointPrefix("b", "uid"):     "checkpoint",
		layout.Composition("b", "uid"):          "composition",
		layout.Failure("b", "uid"):              "backup record",
		layout.PostOperation("b", "uid"):        "backup record",
		layout.PostHooks("b", "uid", 1):         "backup record",
		layout.PostHooksEnded("b", "uid"):       "backup record",
		layout.BackupOperations("b", "uid"):     "operation record",
		layout.DeletionSnapshots("b", "uid"):    "deletion record",
		layout.RestoreLog("r"):                  "log",
		layout.RestoreResults("r"):              "results",
		layout.RestoreResourceList("r"):         "resource list",
		layout.RestoreItemOperations("r"):       "item operations",
		layout.RestoreVolumeInfo("r"):           "volume info",
		layout.RestoreRecords("r", "uid"):       "restore record",
		layout.RestoreOwnerFile("r", "uid"):     "restore record",
		layout.RestoreOperations("r", "uid"):    "restore record",
		layout.BackupDir("b"):                   "object",
		layout.PartsDir("b"):                    "object",
		layout.PartsPrefix("b", "uid"):          "object",
		layout.BackupDir("b") + "left-by-users": "object",
		layout.BackupsDir:                       "object",
		layout.RestoreDir("r"):                  "object",
		"metadata/holdfast/probe/1":             "object",
		"":                                      "object",
	} {
		require.Equal(t, want, layout.KindOf(key), key)
	}
}
