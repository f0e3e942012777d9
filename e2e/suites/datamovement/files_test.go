package datamovement

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// filesRestored has a file of a moved snapshot come back into claim data of another namespace, which a Pod has mounted.
func (b *bed) filesRestored(t *testing.T, backup, namespace string, stored map[string]string) {
	dir := b.directory(t, namespace, "data")
	changed := filepath.Join(dir, "tables", "rows")
	require.NoError(t, os.WriteFile(changed, []byte("changed"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), nil, 0o600))
	b.runPod(t, namespace, "data")
	pod, claim := &corev1.Pod{}, &corev1.PersistentVolumeClaim{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, pod))
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "data"}, claim))
	mounted := filepath.Join(b.movers.Root(), "pods", string(pod.UID), "volumes", "kubernetes.io~csi", claim.Spec.VolumeName)
	require.NoError(t, os.MkdirAll(mounted, 0o755))
	require.NoError(t, os.Symlink(dir, filepath.Join(mounted, "mount"))) // a link stands for a mount
	pod.Status.Phase = corev1.PodRunning
	require.NoError(t, b.Client.Status().Update(t.Context(), pod))

	require.NoError(t, b.Client.Create(t.Context(), &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "files", Annotations: map[string]string{"holdfast.io/files": `{"` + backup + `/data":["tables/rows"]}`}},
		Spec:       velerov1.RestoreSpec{BackupName: backup, NamespaceMapping: map[string]string{backup: namespace}},
	}))
	ended := b.RestoreEnds(t, "files")
	require.Equal(t, velerov1.RestorePhaseCompleted, ended.Status.Phase, "%+v", ended.Status)
	require.Empty(t, b.downloads(t, "files"))
	got := volumefiles.Describe(t, dir)
	require.Contains(t, got, "new")
	require.Equal(t, stored["tables/rows"], got["tables/rows"])
	require.NoError(t, b.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
}
