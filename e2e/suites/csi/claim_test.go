package csi

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
)

// claimOfSnapshot makes a claim of a snapshot of the driver, as a restore does, in a namespace of its
// own, checks that it has the files of the snapshot, and removes all but the snapshot.
func (b *bed) claimOfSnapshot(t *testing.T, name string, s directorydriver.Snapshot) {
	t.Helper()
	b.Namespace(t, name)
	group, content := snapshotv1.GroupName, name
	vsc := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: snapshotv1.VolumeSnapshotContentSpec{
		Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain, Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &s.ID},
		VolumeSnapshotRef: corev1.ObjectReference{Namespace: name, Name: name},
	}}
	vs := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name},
		Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: &content}}}
	for _, o := range []client.Object{vsc, vs} {
		require.NoError(t, b.Client.Create(t.Context(), o))
	}
	volume := b.createClaim(t, name, name, func(spec *corev1.PersistentVolumeClaimSpec) {
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: name}
	})
	require.NoError(t, b.driver.Write(volume, func(dir string) error {
		require.Equal(t, requireConsistent(t, s.Dir), requireConsistent(t, dir))
		return nil
	}))
	for _, o := range []client.Object{vs, vsc} {
		require.NoError(t, b.Client.Delete(t.Context(), o))
	}
	b.requireClean(t, []string{s.Volume}, 1, name)
}
