//go:build velero

package veleroplugin_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
)

// vendorVolumes backs a volume up, restores it from its snapshot beside itself and once it is lost,
// and deletes the backup.
func vendorVolumes(t *testing.T, s *site.Site, bucket *site.Bucket) {
	calls := filepath.Join(t.TempDir(), "calls")
	called := func() string {
		lines, err := os.ReadFile(calls)
		require.NoError(t, err)
		return string(lines)
	}
	location := &velerov1.VolumeSnapshotLocation{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "fw"}}
	location.Spec.Provider, location.Spec.Config = "velerofw.io/volumes", map[string]string{"zone": "z", "calls": calls}
	require.NoError(t, s.Client.Create(t.Context(), location))
	createBoundClaim(t, s)

	s.Backup(t, "volumes", bucket, "v")
	b := s.BackupEnds(t, "volumes")
	require.Equal(t, velerov1.BackupPhaseCompleted, b.Status.Phase, string(bucket.ReadZipped(t, "backups/volumes/volumes-results.gz")))
	require.Equal(t, "snapshot of id of pv-v in z1 for volumes of pv-v\n", called())
	require.Equal(t, 1, b.Status.VolumeSnapshotsAttempted)
	require.Equal(t, 1, b.Status.VolumeSnapshotsCompleted)
	var listed []nativesnapshot.Snapshot
	require.NoError(t, json.Unmarshal(bucket.ReadZipped(t, "backups/volumes/volumes-volumesnapshots.json.gz"), &listed))
	require.Equal(t, []nativesnapshot.Snapshot{{
		Spec: nativesnapshot.Spec{BackupName: "volumes", BackupUID: string(b.UID), Location: "fw", PersistentVolumeName: "pv-v",
			ProviderVolumeID: "id of pv-v", VolumeType: "fast", VolumeAZ: "z1", VolumeIOPS: ptr.To[int64](5)},
		Status: nativesnapshot.Status{ProviderSnapshotID: "id of pv-v,z1,", Phase: nativesnapshot.PhaseCompleted},
	}}, listed)

	s.Restore(t, "beside", "volumes", "v", "v2")
	r := s.RestoreEnds(t, "beside")
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, string(bucket.ReadZipped(t, "restores/beside/restore-beside-results.gz")))
	pv := &corev1.PersistentVolume{}
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Name: awaitBound(t, s, "v2").Spec.VolumeName}, pv))
	require.Regexp(t, "^velero-clone-", pv.Name)
	require.Equal(t, "pv-v", pv.Annotations[velerov1.AnnotationOriginalPVName])
	require.Equal(t, "id of pv-v,z1,,fast,z1,5,z", pv.Annotations["velerofw.io/volume"])
	require.Equal(t, "pv-v", awaitBound(t, s, "v").Spec.VolumeName)

	deleteVolume(t, s)
	s.Restore(t, "volumes", "volumes", "v", "v")
	r = s.RestoreEnds(t, "volumes")
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, string(bucket.ReadZipped(t, "restores/volumes/restore-volumes-results.gz")))
	require.Contains(t, called(), "volume from id of pv-v,z1,: fast in z1 at 5\n")
	pv = &corev1.PersistentVolume{}
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Name: "pv-v"}, pv))
	require.Equal(t, "id of pv-v,z1,,fast,z1,5,z", pv.Annotations["velerofw.io/volume"])
	awaitBound(t, s, "v")

	s.DeleteBackup(t, "volumes")
	require.Contains(t, called(), "no snapshot id of pv-v,z1,\n")
}

// createBoundClaim makes a namespace with a claim and the volume that it is bound to.
func createBoundClaim(t *testing.T, s *site.Site) {
	t.Helper()
	s.Namespace(t, "v")
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-v", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}}}
	pv.Spec.Capacity, pv.Spec.AccessModes, pv.Spec.PersistentVolumeReclaimPolicy = size, modes, corev1.PersistentVolumeReclaimRetain
	pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/nowhere"}
	require.NoError(t, s.Client.Create(t.Context(), pv))
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "v", Name: "data"}}
	pvc.Spec.AccessModes, pvc.Spec.Resources.Requests = modes, size
	pvc.Spec.VolumeName, pvc.Spec.StorageClassName = "pv-v", ptr.To("")
	require.NoError(t, s.Client.Create(t.Context(), pvc))
	awaitBound(t, s, "v")
}

// awaitBound returns the claim of a namespace once it is bound.
func awaitBound(t *testing.T, s *site.Site, namespace string) *corev1.PersistentVolumeClaim {
	t.Helper()
	pvc := &corev1.PersistentVolumeClaim{}
	require.Eventually(t, func() bool {
		err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "data"}, pvc)
		return err == nil && pvc.Status.Phase == corev1.ClaimBound
	}, site.Patience, site.Look)
	return pvc
}

// deleteVolume deletes the namespace and the volume.
func deleteVolume(t *testing.T, s *site.Site) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	require.NoError(t, s.Client.Delete(t.Context(), namespace))
	gone := func(o client.Object) func() bool {
		return func() bool { return apierrors.IsNotFound(s.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o)) }
	}
	require.Eventually(t, gone(namespace), site.Patience, site.Look)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-v"}}
	require.NoError(t, s.Client.Delete(t.Context(), pv))
	require.Eventually(t, gone(pv), site.Patience, site.Look)
}
