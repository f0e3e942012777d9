package plugins

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

func TestMain(m *testing.M) {
	if os.Getenv("VELERO_PLUGIN") != "" {
		beAPlugin()
	}
	goleak.VerifyTestMain(m)
}

// beAPlugin is the test binary as a plugin.
func beAPlugin() {
	registry := &plugin.Registry{}
	registry.VolumeSnapshotter("disks.example.com/files", func(plugin.Env) (plugin.VolumeSnapshotter, error) { return &disks{}, nil })
	if err := serve.Run(registry); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// disks is a plugin whose volumes and snapshots are the files of a directory.
type disks struct{ dir string }

func (d *disks) Init(_ context.Context, config map[string]string) error {
	d.dir = config["dir"]
	return nil
}

func (d *disks) GetVolumeID(_ context.Context, volume *unstructured.Unstructured) (string, error) {
	id, _, err := unstructured.NestedString(volume.Object, "spec", "hostPath", "path")
	return filepath.Base(id), err
}

func (d *disks) SetVolumeID(_ context.Context, volume *unstructured.Unstructured, id string) (*unstructured.Unstructured, error) {
	return volume, unstructured.SetNestedField(volume.Object, "/"+id, "spec", "hostPath", "path")
}

func (d *disks) GetVolumeInfo(context.Context, string, string) (string, int64, error) {
	return "file", 0, nil
}

func (d *disks) CreateSnapshot(_ context.Context, id, _ string, _ map[string]string) (string, error) {
	return d.copyDisk(id, "snapshot-of-"+id)
}

func (d *disks) CreateVolumeFromSnapshot(_ context.Context, id, _, _ string, _ int64) (string, error) {
	return d.copyDisk(id, "made-of-"+id)
}

func (d *disks) DeleteSnapshot(_ context.Context, id string) error {
	return os.RemoveAll(filepath.Join(d.dir, id))
}

func (d *disks) copyDisk(from, to string) (string, error) {
	content, err := os.ReadFile(filepath.Join(d.dir, from))
	if err != nil {
		return "", err
	}
	return to, os.WriteFile(filepath.Join(d.dir, to), content, 0o600)
}

// TestVolumesAreSnapshotRestoredAndDeletedByAPlugin takes a native snapshot through a plugin process,
// makes a volume of it, and deletes it with the backup.
func TestVolumesAreSnapshotRestoredAndDeletedByAPlugin(t *testing.T) {
	plugins, dir := []string{"--plugin-dir", selfplugin.Directory(t, "disks")}, t.TempDir()
	s := site.Start(t, site.Config{Args: map[string][]string{"backup-runner": plugins, "restore-runner": plugins, "deletion": plugins}})
	bucket, path := site.FileBucket(t, "volumes")
	s.ReachFiles(t, path, bucket)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "disk"), []byte("what the application wrote"), 0o600))
	location := &velerov1.VolumeSnapshotLocation{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "disks"}}
	location.Spec.Provider, location.Spec.Config = "disks.example.com/files", map[string]string{"dir": dir}
	require.NoError(t, s.Client.Create(t.Context(), location))
	s.Namespace(t, "shop")
	claimDisk(t, s, "shop")

	s.Backup(t, "b", bucket, "shop")
	b := s.BackupEnds(t, "b")
	require.Equal(t, velerov1.BackupPhaseCompleted, b.Status.Phase, string(bucket.ReadZipped(t, "backups/b/b-results.gz")))
	require.Equal(t, 1, b.Status.VolumeSnapshotsCompleted)

	s.Restore(t, "r", "b", "shop", "copy")
	r := s.RestoreEnds(t, "r")
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, string(bucket.ReadZipped(t, "restores/r/restore-r-results.gz")))
	claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: "copy", Name: "data"}, claim))
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Name: claim.Spec.VolumeName}, volume))
	require.Equal(t, "/made-of-snapshot-of-disk", volume.Spec.HostPath.Path)
	content, err := os.ReadFile(filepath.Join(dir, "made-of-snapshot-of-disk"))
	require.NoError(t, err)
	require.Equal(t, "what the application wrote", string(content))

	require.FileExists(t, filepath.Join(dir, "snapshot-of-disk"))
	s.DeleteBackup(t, "b")
	require.NoFileExists(t, filepath.Join(dir, "snapshot-of-disk"))
}

// claimDisk makes a volume and a claim, and waits until they are bound.
func claimDisk(t *testing.T, s *site.Site, namespace string) {
	t.Helper()
	size, modes := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	require.NoError(t, s.Client.Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/disk"}},
	}}))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, VolumeName: "disk", StorageClassName: new(string),
	}}
	require.NoError(t, s.Client.Create(t.Context(), claim))
	require.Eventually(t, func() bool {
		return s.Client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) == nil && claim.Status.Phase == corev1.ClaimBound
	}, site.Patience, site.Look, "the claim is bound")
}
