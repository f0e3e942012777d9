package datamovement

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/csistorage"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

func TestDataMovement(t *testing.T) {
	b := newBed(t)
	var succeeded func(*testing.T)
	t.Run("a mover that is killed", func(t *testing.T) { succeeded = b.moverKilled(t) })
	t.Run("there and back", b.thereAndBack)
	t.Run("in the end: a mover that is killed", succeeded)
	t.Run("killed meanwhile", b.killedMeanwhile)
	t.Run("cancelled", b.cancelled)
}

// thereAndBack has the files of claims survive the loss of their namespace and of all snapshots, there and in another one.
func (b *bed) thereAndBack(t *testing.T) {
	const name, elsewhere = "shop", "shop-copy"
	want := b.createClaims(t, name, "data", csistorage.Late)
	b.runPod(t, name, csistorage.Late)
	b.createBackup(t, name, name)
	backup := b.BackupCompletes(t, name)
	require.Equal(t, len(want), backup.Status.BackupItemOperationsCompleted)
	b.requireNothingLeft(t)
	b.requireStored(t, name, want)

	b.storage.Destroy(t, name)
	t.Run("restored", func(t *testing.T) {
		t.Run("there, where a Pod waits for its claim", func(t *testing.T) {
			t.Parallel()
			b.Restore(t, name, name, name, name)
			b.addConsumer(t, name, csistorage.Late)
			b.requireRestored(t, name, name, want)
		})
		t.Run("elsewhere, the claims alone", func(t *testing.T) {
			t.Parallel()
			require.NoError(t, b.Client.Create(t.Context(), &velerov1.Restore{
				ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: elsewhere}, Spec: velerov1.RestoreSpec{
					BackupName: name, NamespaceMapping: map[string]string{name: elsewhere}, ExcludedResources: []string{"pods"}},
			}))
			b.requireRestored(t, elsewhere, elsewhere, want)
		})
	})
	b.requireNothingLeft(t)
	t.Run("single files", func(t *testing.T) { b.filesRestored(t, name, elsewhere, want["data"]) })
	t.Run("claims that are there stay", func(t *testing.T) {
		dir := b.directory(t, elsewhere, "data")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tables", "rows"), []byte("changed"), 0o600))
		changed := volumefiles.Describe(t, dir)
		b.Restore(t, "again", name, name, elsewhere)
		require.Equal(t, velerov1.RestorePhaseCompleted, b.RestoreEnds(t, "again").Status.Phase)
		require.Empty(t, b.downloads(t, "again"))
		require.Equal(t, changed, volumefiles.Describe(t, dir))
		require.Contains(t, string(b.bucket.ReadZipped(t, layout.RestoreResults("again"))), "data", "a warning")
	})
	t.Run("deleted", func(t *testing.T) { b.deleted(t, name) })
}

// runPod makes a Pod of the node that mounts a claim.
func (b *bed) runPod(t *testing.T, namespace, claim string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: corev1.PodSpec{
		NodeName:   "node",
		Containers: []corev1.Container{{Name: "main", Image: "none", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
	}}
	require.Eventually(t, func() bool { return b.Client.Create(t.Context(), pod.DeepCopy()) == nil }, site.Patience, site.Look, "the account is there")
}

// requireStored checks what cluster and bucket have of a backup: a finished request for each claim, and all that names its snapshot.
func (b *bed) requireStored(t *testing.T, backup string, claims map[string]map[string]string) {
	t.Helper()
	uploads, stored := b.uploads(t, backup), map[string]v2alpha1.DataUpload{}
	require.Len(t, uploads, len(claims))
	snapshots := map[string]string{}
	for claim, u := range uploads {
		require.Equal(t, completed, u.Status.Phase, "%s: %s", claim, u.Status.Message)
		require.NotEmpty(t, u.Status.SnapshotID)
		require.Positive(t, u.Status.Progress.TotalBytes)
		require.Equal(t, u.Status.Progress.TotalBytes, u.Status.Progress.BytesDone)
		snapshots[claim] = u.Status.SnapshotID
	}
	b.bucket.EachStored(t, backup, func(path string, content []byte) {
		switch {
		case strings.HasPrefix(path, "resources/datauploads.velero.io/namespaces/"):
			var u v2alpha1.DataUpload
			require.NoError(t, json.Unmarshal(content, &u))
			stored[u.Spec.SourcePVC] = u
		case strings.HasPrefix(path, "resources/persistentvolumeclaims/namespaces/"):
			var c corev1.PersistentVolumeClaim
			require.NoError(t, json.Unmarshal(content, &c))
			require.Equal(t, site.Server+"/"+uploads[c.Name].Name, c.Annotations[velerov1.AnnotationDataUploadName])
		}
		require.NotContains(t, path, "volumesnapshot", "the snapshots are gone")
	})
	require.Len(t, stored, len(claims))
	var infos []struct {
		PVCName, BackupMethod, Result string
		SnapshotDataMoved             bool
		Movement                      struct{ SnapshotHandle, UploaderType string } `json:"snapshotDataMovementInfo"`
	}
	require.NoError(t, json.Unmarshal(b.bucket.ReadZipped(t, layout.BackupVolumeInfo(backup)), &infos))
	listed := 0
	for _, i := range infos {
		if i.PVCName == "" {
			continue // an emptyDir
		}
		listed++
		require.Equal(t, snapshots[i.PVCName], stored[i.PVCName].Status.SnapshotID)
		require.Equal(t, snapshots[i.PVCName], i.Movement.SnapshotHandle)
		require.Equal(t, "CSISnapshot succeeded true", strings.Join([]string{i.BackupMethod, i.Result, strings.ToLower(jsonText(t, i.SnapshotDataMoved))}, " "))
	}
	require.Equal(t, len(claims), listed)
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// requireRestored waits for the end of a restore, and checks that the claims of its namespace have their files, in volumes like others.
func (b *bed) requireRestored(t *testing.T, restore, namespace string, want map[string]map[string]string) {
	t.Helper()
	ended := b.RestoreEnds(t, restore)
	require.Equal(t, velerov1.RestorePhaseCompleted, ended.Status.Phase, "%s", b.bucket.ReadZipped(t, layout.RestoreResults(restore)))
	downloads := b.downloads(t, restore)
	require.Len(t, downloads, len(want))
	for claim, entries := range want {
		d := downloads[claim]
		require.Equal(t, completed, d.Status.Phase, "%s: %s", claim, d.Status.Message)
		require.Equal(t, namespace, d.Spec.TargetVolume.Namespace)
		require.Equal(t, entries, b.describe(t, b.directory(t, namespace, claim)), "claim %s", claim)
		bound, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: claim}, bound))
		require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Name: bound.Spec.VolumeName}, volume))
		require.Equal(t, bound.UID, volume.Spec.ClaimRef.UID)
		require.Equal(t, corev1.PersistentVolumeReclaimDelete, volume.Spec.PersistentVolumeReclaimPolicy)
	}
}

// deleted has the data of a backup go from the repository with the backup, and restored volumes stay.
func (b *bed) deleted(t *testing.T, backup string) {
	uploads := b.uploads(t, backup)
	require.NotEmpty(t, uploads)
	for _, u := range uploads {
		require.Empty(t, volumefiles.RestoreSnapshot(t, b.Site, b.bucket, u.Spec.SourceNamespace, u.Status.SnapshotID))
	}
	b.DeleteBackup(t, backup)
	for _, u := range uploads {
		require.Contains(t, volumefiles.RestoreSnapshot(t, b.Site, b.bucket, u.Spec.SourceNamespace, u.Status.SnapshotID), "the repository does not have the snapshot")
	}
	require.Eventually(t, func() bool { return len(b.uploads(t, backup)) == 0 }, site.Patience, site.Look, "its requests are gone")
	b.requireNothingLeft(t)
}
