package backupsync

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// A forged file in a bucket makes every cluster that reads it allocate gigabytes: a list of
// PodVolumeBackups "{},{}," is structs of a kilobyte for three bytes each, and one of a backup's
// hooks in velero-backup.json is not much better.
func TestForgedFilesOfABackupCostBoundedMemory(t *testing.T) {
	b := newBed(t)
	for i, element := range []string{"{}", "null", `{"metadata":{"ownerReferences":[{},{},{},{},{},{},{},{},{},{}]}}`} {
		name := "b" + strings.Repeat("b", i)
		b.putBackup(storedBackup(name, velerov1.BackupPhaseCompleted))
		b.store.Set(layout.BackupPodVolumeBackups(name), limittest.Packed(t, limittest.List("[", element, "]", 32<<20)))
	}
	hooks := limittest.Text(t, limittest.List(`{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"h"},"spec":{"hooks":{"resources":[`, "{}", `]}},"status":{"phase":"Completed"}}`, 6<<20))
	b.store.Set(layout.BackupMetadata("h"), hooks)
	b.store.Set(layout.BackupTarball("h"), []byte("x"))
	b.putBackup(storedBackup("good", velerov1.BackupPhaseCompleted))
	require.Less(t, limittest.Allocated(b.runPass), uint64(1<<30))
	require.NotNil(t, b.getBackup("good"))
	require.NotNil(t, b.getBackup("b"))
}
