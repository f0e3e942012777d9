package csisnapshot_test

import (
	"context"
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

// takeSnapshot takes a snapshot of a/c0.
func (b *bed) takeSnapshot(t *testing.T) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {
	t.Helper()
	r, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claimOf("c0"), "key")
	require.NoError(t, err)
	vs := readItem(t, b, r.Additional[0], &snapshotv1.VolumeSnapshot{})
	return vs, readItem(t, b, action.Item{Name: *vs.Status.BoundVolumeSnapshotContentName}, &snapshotv1.VolumeSnapshotContent{})
}

// removeFinalizers removes the finalizers of a VolumeSnapshot.
func (b *bed) removeFinalizers(t *testing.T, vs *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshot {
	t.Helper()
	freed := vs.DeepCopy()
	freed.Finalizers = nil
	require.NoError(t, b.Client.Patch(t.Context(), freed, client.MergeFrom(vs)))
	return freed
}

// reconcileDriver runs the controller and the driver once.
func (b *bed) reconcileDriver(t *testing.T) {
	t.Helper()
	for range 3 {
		require.NoError(t, b.driver.ReconcileOnce(t.Context()))
	}
}

// A sidecar removes only snapshots whose handle is in the status of the content. It does not write
// that to a content which is being deleted when it first reads it.
func TestADeletionDoesNotDependOnWhatTheSidecarSaw(t *testing.T) {
	b := newBed(t, 1)
	_, vsc := b.takeSnapshot(t)
	owner := csisnapshot.Owner{Name: "b", UID: "uid-b"}
	require.NoError(t, b.End(t.Context(), owner, func(types.NamespacedName) bool { return true }))
	require.NoError(t, b.Gone(t.Context(), owner))
	b.stop()
	raw, err := json.Marshal(vsc)
	require.NoError(t, err)
	backup, err := action.NewBackup(b.backup)
	require.NoError(t, err)
	require.NoError(t, b.DeleteActions()[0].Execute(t.Context(), action.FromJSON(raw), backup))
	b.reconcileDriver(t)
	b.requireNoSnapshots(t)
}

// The snapshot controller lets the sidecar know of a deletion when the VolumeSnapshot goes, which it
// may have done before anything else was known.
func TestAContentWhoseSnapshotIsGoneIsRemoved(t *testing.T) {
	b := newBed(t, 1)
	vs, _ := b.takeSnapshot(t)
	b.stop()
	freed := b.removeFinalizers(t, vs)
	require.NoError(t, b.Client.Delete(t.Context(), freed))
	require.NoError(t, b.DiscardAll(t.Context(), csisnapshot.Owner{Name: "b", UID: "uid-b"}))
	b.reconcileDriver(t)
	b.requireNoSnapshots(t)
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
	b.reconcileDriver(t)
	b.requireNoSnapshots(t)
}

// observed calls after once a deletion or a patch is done.
type observed struct {
	client.Client
	after func()
}

func (o observed) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	err := o.Client.Delete(ctx, object, options...)
	o.after()
	return err
}

func (o observed) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	err := o.Client.Patch(ctx, object, patch, options...)
	o.after()
	return err
}

// The controllers may do all there is to do between two steps of the removal: with a content that is
// made anew for a VolumeSnapshot which is still there the driver would remove what the backup names.
func TestASnapshotThatABackupNamesOutlivesTheSlowRemovalOfItsObjects(t *testing.T) {
	b := newBed(t, 1)
	_, vsc := b.takeSnapshot(t)
	b.stop()
	b.reconcileDriver(t)
	b.Client = observed{b.Client, func() { b.reconcileDriver(t) }}
	require.NoError(t, b.End(t.Context(), csisnapshot.Owner{Name: "b", UID: "uid-b"}, func(types.NamespacedName) bool { return true }))
	snapshots, contents := b.countSnapshots(t)
	require.Zero(t, snapshots+contents)
	require.Equal(t, []string{*vsc.Status.SnapshotHandle}, b.driver.Stored())
}

// A content is ready before its VolumeSnapshot, which the snapshot controller writes after it.
func TestASnapshotIsReadyOnceBothItsObjectsAre(t *testing.T) {
	b := newBed(t, 1)
	vs, vsc := b.takeSnapshot(t)
	b.stop()
	b.reconcileDriver(t)
	op := action.Operation{Action: csisnapshot.NameSnapshot, ID: csisnapshot.OperationID(vs)}
	vs = readItem(t, b, action.Item{Namespace: vs.Namespace, Name: vs.Name}, vs)
	require.True(t, *readItem(t, b, action.Item{Name: vsc.Name}, vsc).Status.ReadyToUse)
	for _, known := range []bool{false, true} {
		late := vs.DeepCopy()
		late.Status.ReadyToUse = &known
		require.NoError(t, b.Client.Patch(t.Context(), late, client.MergeFrom(vs)))
		p, err := (&csisnapshot.Operations{API: b.API}).Progress(t.Context(), op, []byte(`{}`))
		require.NoError(t, err)
		require.Equal(t, known, p.Done)
		vs = late
	}
}

// The controllers write all annotations as they read them before, without the mark of a deletion.
func TestADeletionWhoseMarkWasOverwrittenGoesOn(t *testing.T) {
	owner := csisnapshot.Owner{Name: "b", UID: "uid-b"}
	for name, goesOn := range map[string]func(*bed) error{
		"with the next removal":       func(b *bed) error { return b.DiscardAll(t.Context(), owner) },
		"while the driver is awaited": func(b *bed) error { return b.Gone(t.Context(), owner) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 1)
			vs, vsc := b.takeSnapshot(t)
			b.stop()
			freed := b.removeFinalizers(t, vs)
			require.NoError(t, b.Client.Delete(t.Context(), freed))
			require.NoError(t, b.Client.Delete(t.Context(), vsc))
			b.reconcileDriver(t)
			_, contents := b.countSnapshots(t)
			require.Equal(t, 1, contents)
			b.Client = observed{b.Client, func() { b.reconcileDriver(t) }}
			require.NoError(t, goesOn(b))
			b.requireNoSnapshots(t)
		})
	}
}

// overwriting is a client beside a controller that writes the annotations of contents as it read
// them before each patch, when they had none.
type overwriting struct{ client.Client }

func (o overwriting) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	err := o.Client.Patch(ctx, object, patch, options...)
	if _, content := object.(*snapshotv1.VolumeSnapshotContent); err != nil || !content {
		return err
	}
	return o.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`)))
}

// A backup that ends between the cut of a snapshot and the labels of its content removes both. If the
// mark of the deletion is overwritten then, nothing but labels leads to the content.
func TestAContentThatWasNotDescribedIsFoundAfterItsMarkWasOverwritten(t *testing.T) {
	owner := csisnapshot.Owner{Name: "b", UID: "uid-b"}
	none := func(types.NamespacedName) bool { return false }
	for name, removes := range map[string]func(*bed) error{
		"when the end is repeated":    func(b *bed) error { return b.End(t.Context(), owner, none) },
		"when the backup is deleted":  func(b *bed) error { return b.DiscardAll(t.Context(), owner) },
		"while the driver is awaited": func(b *bed) error { return b.Gone(t.Context(), owner) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 1)
			vs, vsc := b.takeSnapshot(t)
			b.stop()
			b.removeFinalizers(t, vs)
			undescribed := vsc.DeepCopy()
			undescribed.Labels = nil
			require.NoError(t, b.Client.Patch(t.Context(), undescribed, client.MergeFrom(vsc)))

			reliable := b.Client
			b.Client = overwriting{reliable}
			require.NoError(t, b.End(t.Context(), owner, none))
			b.reconcileDriver(t)
			snapshots, contents := b.countSnapshots(t)
			require.Equal(t, []int{0, 1}, []int{snapshots, contents})
			require.Len(t, b.driver.Stored(), 1)

			b.Client = observed{reliable, func() { b.reconcileDriver(t) }}
			require.NoError(t, removes(b))
			b.requireNoSnapshots(t)
		})
	}
}

// What a restore made has its own end, whichever backup its snapshot is labelled with.
func TestAContentOfARestoreIsNotLabelledAsABackups(t *testing.T) {
	b := newBed(t, 1)
	vs, vsc := b.takeSnapshot(t)
	b.stop()
	restored := vs.DeepCopy()
	restored.Labels["velero.io/restore-name"] = "r"
	require.NoError(t, b.Client.Patch(t.Context(), restored, client.MergeFrom(vs)))
	bare := vsc.DeepCopy()
	bare.Labels = nil
	require.NoError(t, b.Client.Patch(t.Context(), bare, client.MergeFrom(vsc)))
	require.NoError(t, b.Release(t.Context(), restored, bare))
	require.Empty(t, readItem(t, b, action.Item{Name: vsc.Name}, &snapshotv1.VolumeSnapshotContent{}).Labels)
}
