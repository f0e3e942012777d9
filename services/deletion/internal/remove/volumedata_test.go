package remove

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

const movedByVelero = `[{"spec":{"backupItemAction":"velero.io/csi-pvc-backupper","resourceIdentifier":{"Group":"","Resource":"persistentvolumeclaims","Namespace":"n","Name":"moved"},
 "operationID":"du-1","postOperationItems":[{"Group":"velero.io","Resource":"datauploads","Namespace":"velero","Name":"b-x"}]},"status":{"phase":"Completed"}}]`

// Data in CSI snapshots, PodVolumeBackups and DataUploads is known from the backup alone: deleting
// the backup loses the only record of it while the data stays and costs money.
func TestABackupWithVolumeDataThatCannotBeRemovedStays(t *testing.T) {
	mine := map[string]string{velerov1.LabelBackupName: "b", velerov1.LabelBackupUID: "b-uid"}
	pvb := &velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "p", Labels: mine}}
	pvb.Spec.Pod.Namespace, pvb.Spec.Pod.Name, pvb.Spec.Volume, pvb.Status.SnapshotID = "n", "pod", "data", "k1"
	du := &v2alpha1.DataUpload{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "u", Labels: mine}}
	du.Spec.SourceNamespace, du.Spec.SourcePVC, du.Status.SnapshotID = "n", "moved", "k1"
	for name, tc := range map[string]struct {
		file, text string
		object     client.Object
		want       string
	}{
		"CSI snapshot": {file: layout.BackupVolumeInfo("b"), want: "1 CSI snapshot (such as CSISnapshot of claim n/data)",
			text: `[{"pvcName":"data","pvcNamespace":"n","pvName":"pv","backupMethod":"CSISnapshot","csiSnapshotInfo":{"snapshotHandle":"h"}},{"pvName":"x","skipped":true}]`},
		"PodVolumeBackup": {file: layout.BackupPodVolumeBackups("b"), want: "1 PodVolumeBackup (such as PodVolumeBackup of claim n/data)",
			text: `[{"metadata":{"annotations":{"velero.io/pvc-name":"data"}},"spec":{"pod":{"namespace":"n","name":"p"},"volume":"v"},"status":{"phase":"Completed","snapshotID":"k"}}]`},
		"DataUpload":                      {file: layout.BackupItemOperations("b"), text: movedByVelero, want: "1 DataUpload (such as DataUpload of claim n/moved)"},
		"CSI snapshot of Velero 1.12":     {file: layout.BackupCSISnapshots("b"), text: `[{"metadata":{"namespace":"n","name":"s"},"spec":{"source":{"persistentVolumeClaimName":"c"}}}]`, want: "1 CSI snapshot"},
		"PodVolumeBackup of a failed one": {object: pvb, want: "1 PodVolumeBackup (such as PodVolumeBackup of volume data of pod n/pod)"},
		"DataUpload of a failed one":      {object: du, want: "1 DataUpload"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreOf("r", "b")}
			if tc.object != nil {
				objects = append(objects, tc.object)
			}
			b := newBed(t, objects...)
			b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
			if tc.file != "" {
				b.store.Set(tc.file, limittest.PackedText(t, tc.text))
			}
			keys := b.store.Keys()
			require.Equal(t, Done, b.processRequest("d"))
			d := b.readRequest("d")
			require.Len(t, d.Status.Errors, 1)
			require.Contains(t, d.Status.Errors[0], tc.want)
			require.Contains(t, d.Status.Errors[0], holdfast.AnnotationLeaveVolumeData)
			require.Equal(t, velerov1.BackupPhaseCompleted, b.readBackup().Status.Phase, "it can still be restored from")
			require.Equal(t, keys, b.store.Keys())
			require.NotNil(t, findObject(b, &velerov1.Restore{}, "r"))
			require.True(t, PermanentlyRefused(d, b.readBackup()))

			left := b.readBackup()
			metav1.SetMetaDataAnnotation(&left.ObjectMeta, holdfast.AnnotationLeaveVolumeData, "true")
			require.NoError(t, b.client.Update(t.Context(), left))
			require.False(t, PermanentlyRefused(d, left))
			require.NoError(t, b.client.Create(t.Context(), newRequest("e")))
			require.Equal(t, Done, b.processRequest("e"))
			require.Nil(t, b.readBackup())
			require.Equal(t, neighbours, b.store.Keys())
		})
	}
}

// What failed has no data, and other backups' objects do not count: such a backup is deleted as
// ever.
func TestABackupWithoutVolumeDataIsDeleted(t *testing.T) {
	other := &velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "p", Labels: map[string]string{
		velerov1.LabelBackupName: "b", velerov1.LabelBackupUID: "another",
	}}}
	other.Status.SnapshotID = "k"
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), other)
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	b.store.Set(layout.BackupVolumeInfo("b"), limittest.PackedText(t, `[{"pvName":"a","backupMethod":"PodVolumeBackup","result":"failed"},{"pvName":"b","backupMethod":"NativeSnapshot"},{"pvName":"c","skipped":true}]`))
	b.store.Set(layout.BackupPodVolumeBackups("b"), limittest.PackedText(t, "null\n"))
	b.store.Set(layout.BackupItemOperations("b"), limittest.PackedText(t, "[]\n"))
	require.Equal(t, Done, b.processRequest("d"))
	require.Nil(t, b.readBackup())
}

// A file that cannot be read may list volume data: nothing is removed, and the request names the
// reason.
func TestVolumeDataThatCannotBeToldKeepsTheBackup(t *testing.T) {
	away := errors.New("bucket is away")
	for name, damage := range map[string]func(*bed){
		"damaged": func(b *bed) { b.store.Set(layout.BackupVolumeInfo("b"), []byte("junk")) },
		"unreadable": func(b *bed) {
			b.store.Inject(func(op memstore.Op, key string) error {
				if key == layout.BackupVolumeInfo("b") {
					return away
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreOf("r", "b"))
			b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
			damage(b)
			keys := b.store.Keys()
			require.Equal(t, Done, b.processRequest("d"))
			d := b.readRequest("d")
			require.Len(t, d.Status.Errors, 1)
			require.Contains(t, d.Status.Errors[0], "volume data: cannot tell whether")
			require.Equal(t, keys, b.store.Keys())
			require.NotNil(t, findObject(b, &velerov1.Restore{}, "r"))
			require.False(t, PermanentlyRefused(d, b.readBackup()), "it is asked for again")

			d = newRequest("e")
			d.Annotations = map[string]string{holdfast.AnnotationLeaveVolumeData: "true"}
			require.NoError(t, b.client.Create(t.Context(), d))
			require.Equal(t, Done, b.processRequest("e"))
			require.Nil(t, b.readBackup())
		})
	}
}

// While it is not known whether there is volume data the Backup is Deleting, and a user removes the
// object. A deletion that continues with the bucket alone loses the only record of that data.
func TestVolumeDataIsAskedForAfterTheBackupObjectIsGone(t *testing.T) {
	for _, begun := range []bool{false, true} {
		b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
		b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
		b.r.Tries = 0
		b.store.Set(layout.BackupVolumeInfo("b"), limittest.PackedText(t, `[{"pvcName":"data","pvcNamespace":"n","backupMethod":"CSISnapshot","csiSnapshotInfo":{"snapshotHandle":"h"}}]`))
		b.store.Inject(func(op memstore.Op, key string) error {
			if key == layout.BackupVolumeInfo("b") {
				return errors.New("bucket is away")
			}
			return nil
		})
		require.Equal(t, Later, b.processRequest("d"))
		require.NoError(t, b.client.Delete(t.Context(), b.readBackup()))
		b.store.Inject(nil)
		if begun { // that was decided before, perhaps with leave to do so
			require.NoError(t, b.store.Delete(t.Context(), layout.BackupTarball("b")))
		}
		keys := b.store.Keys()
		b.clock.Step(time.Minute)
		if begun {
			require.Equal(t, Done, b.processRequest("d"))
			require.Equal(t, neighbours, b.store.Keys())
			continue
		}
		require.Equal(t, Later, b.processRequest("d"))
		require.Contains(t, b.readRequest("d").Status.Errors[0], "1 CSI snapshot")
		require.Equal(t, keys, b.store.Keys())
	}
}
