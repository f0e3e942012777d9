package csisnapshot_test

import (
	"encoding/json"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
)

// cut takes a snapshot of a/c0.
func (b *bed) cut(t *testing.T) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {
	t.Helper()
	r, err := start(t, b.snapshotter(), csisnapshot.NameClaim, claimOf("c0"), "key")
	require.NoError(t, err)
	vs := read(t, b, r.Additional[0], &snapshotv1.VolumeSnapshot{})
	return vs, read(t, b, action.Item{Name: *vs.Status.BoundVolumeSnapshotContentName}, &snapshotv1.VolumeSnapshotContent{})
}

// look runs the controller and the driver once.
func (b *bed) look(t *testing.T) {
	t.Helper()
	for range 3 {
		require.NoError(t, b.driver.Look(t.Context()))
	}
}

// A sidecar removes only snapshots whose handle is in the status of the content. It does not write
// that to a content which is being deleted when it first reads it.
func TestADeletionDoesNotDependOnWhatTheSidecarSaw(t *testing.T) {
	b := newBed(t, 1)
	_, vsc := b.cut(t)
	owner := csisnapshot.Owner{Name: "b", UID: "uid-b"}
	require.NoError(t, b.End(t.Context(), owner, func(types.NamespacedName) bool { return true }))
	require.NoError(t, b.Gone(t.Context(), owner))
	b.stop()
	raw, err := json.Marshal(vsc)
	require.NoError(t, err)
	backup, err := action.NewBackup(b.backup)
	require.NoError(t, err)
	require.NoError(t, b.DeleteActions()[0].Execute(t.Context(), action.FromJSON(raw), backup))
	b.look(t)
	b.gone(t)
}

// The snapshot controller lets the sidecar know of a deletion when the VolumeSnapshot goes, which it
// may have done before anything else was known.
func TestAContentWhoseSnapshotIsGoneIsRemoved(t *testing.T) {
	b := newBed(t, 1)
	vs, _ := b.cut(t)
	b.stop()
	freed := vs.DeepCopy()
	freed.Finalizers = nil
	require.NoError(t, b.Client.Patch(t.Context(), freed, client.MergeFrom(vs)))
	require.NoError(t, b.Client.Delete(t.Context(), freed))
	require.NoError(t, b.DiscardAll(t.Context(), csisnapshot.Owner{Name: "b", UID: "uid-b"}))
	b.look(t)
	b.gone(t)
}

// A class may retain what the driver stores. A snapshot that is of no use goes nevertheless, also
// before its status names its content.
func TestASnapshotThatIsNotBoundGoesWithItsContent(t *testing.T) {
	b := newBed(t, 1)
	b.stop()
	vs := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "early"},
		Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("c0")}, VolumeSnapshotClassName: ptr.To("only")}}
	require.NoError(t, b.Client.Create(t.Context(), vs))
	vsc := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-" + string(vs.UID)},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: vs.Namespace, Name: vs.Name, UID: vs.UID}, Driver: driver,
			DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain, Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: ptr.To("vol-c0")},
		},
	}
	require.NoError(t, b.Client.Create(t.Context(), vsc))
	require.NoError(t, b.Discard(t.Context(), vs.Namespace, vs.Name))
	b.look(t)
	b.gone(t)
}
