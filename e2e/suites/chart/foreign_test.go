package chart_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// endUnfinished leaves jobs as another server does that was removed while it worked: one that waits to
// start is done, one that was stored can be restored, and what was in progress has failed. The files
// of the stored one are those of the backup "own" in root.
func endUnfinished(t *testing.T, s *site.Site, bucket *site.Bucket, root string) {
	t.Helper()
	const reason = "left unfinished by another server"
	create := func(name string, phase velerov1.BackupPhase) *velerov1.Backup {
		b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name},
			Spec: velerov1.BackupSpec{StorageLocation: bucket.Location, IncludedNamespaces: []string{"shop"}}}
		b.Status.Phase = phase
		require.NoError(t, s.Client.Create(t.Context(), b))
		return b
	}
	create("ready", velerov1.BackupPhaseReadyToStart)
	stored := create("stored", velerov1.BackupPhaseDeleting) // no service changes it before its files are there
	text, err := os.ReadFile(filepath.Join(root, "own", "velero-backup.json"))
	require.NoError(t, err)
	b := &velerov1.Backup{}
	require.NoError(t, json.Unmarshal(text, b))
	b.Name, b.UID, b.Annotations = stored.Name, stored.UID, nil
	b.Status.Phase, b.Status.CompletionTimestamp = velerov1.BackupPhaseWaitingForPluginOperations, nil
	text, err = json.Marshal(b)
	require.NoError(t, err)
	tarball, err := os.ReadFile(filepath.Join(root, "own", "own.tar.gz"))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(root, "stored"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "stored", "stored.tar.gz"), tarball, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "stored", "velero-backup.json"), text, 0o600))
	require.NoError(t, kube.Update(t.Context(), s.Client, s.Client, stored, func(o *velerov1.Backup) error {
		o.Status = b.Status
		return nil
	}))
	restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "unfinished"}, Spec: velerov1.RestoreSpec{BackupName: "own"}}
	restore.Status.Phase = velerov1.RestorePhaseInProgress
	require.NoError(t, s.Client.Create(t.Context(), restore))

	require.Equal(t, velerov1.BackupPhaseCompleted, s.BackupEnds(t, "ready").Status.Phase)
	ended := s.BackupEnds(t, "stored")
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, ended.Status.Phase)
	require.Equal(t, reason, ended.Status.FailureReason)
	failed := s.RestoreEnds(t, "unfinished")
	require.Equal(t, velerov1.RestorePhaseFailed, failed.Status.Phase)
	require.Equal(t, reason, failed.Status.FailureReason)
	s.Restore(t, "of-stored", "stored", "shop", "restored")
	require.Equal(t, velerov1.RestorePhaseCompleted, s.RestoreEnds(t, "of-stored").Status.Phase)
}
