package csisnapshot_test

import (
	"context"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
)

// newMover is a snapshotter whose snapshots are moved, and the claim a/c0.
func (b *bed) newMover(t *testing.T, class, problem string) (*csisnapshot.Snapshotter, *corev1.PersistentVolumeClaim) {
	t.Helper()
	pv := &corev1.PersistentVolume{}
	require.NoError(t, b.Reader.Get(t.Context(), client.ObjectKey{Name: "pv-c0"}, pv))
	pv.Spec.StorageClassName = class
	require.NoError(t, b.Client.Update(t.Context(), pv))
	claim := claimOf("c0")
	require.NoError(t, b.Reader.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	s := b.newSnapshotter()
	s.Movement = &csisnapshot.Movement{Namespace: "velero", FindProblem: func(context.Context) (string, error) { return problem, nil }}
	return s, claim
}

func newMoveBed(t *testing.T) *bed {
	b := newBed(t, 1)
	b.serve("velero.io/v2alpha1", "datauploads", "DataUpload")
	require.NoError(t, b.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "velero"}}))
	b.backup.UID = types.UID("9f0e6bd1-3c3a-4f0b-8a55-1c1f4a9f2f10")
	b.backup.Spec.StorageLocation, b.backup.Spec.UploaderConfig = "default", &velerov1.UploaderConfigForBackup{ParallelFilesUpload: 3}
	b.backup.Spec.CSISnapshotTimeout = metav1.Duration{Duration: time.Minute}
	return b
}

// The claim names its DataUpload, which is stored once its operation has ended; the snapshot is not stored.
func TestTheDataOfASnapshotIsMoved(t *testing.T) {
	b := newMoveBed(t)
	s, claim := b.newMover(t, "fast", "")
	r, err := callAction(t, s, csisnapshot.NameClaim, claim, "key")
	require.NoError(t, err)
	require.Empty(t, r.Additional, "the snapshot goes once its data is moved")
	require.Len(t, r.PostOperation, 1)
	require.Equal(t, "du-9f0e6bd1-3c3a-4f0b-8a55-1c1f4a9f2f10."+string(claim.UID), r.OperationID)
	require.Equal(t, csisnapshot.Uploads, r.PostOperation[0].GroupResource)
	upload := readItem(t, b, r.PostOperation[0], &v2alpha1.DataUpload{})
	stored := decodeObject[corev1.PersistentVolumeClaim](t, r.Object)
	require.Equal(t, "velero/"+upload.Name, stored.Annotations["velero.io/data-upload-name"])
	require.NotContains(t, stored.Annotations, velerov1.AnnotationMustIncludeAdditional)
	require.Equal(t, upload.Spec.CSISnapshot.VolumeSnapshot, stored.Labels["velero.io/volume-snapshot-name"])
	require.Equal(t, "5Gi", ptr.To(stored.Spec.Resources.Requests[corev1.ResourceStorage]).String())

	require.Equal(t, map[string]string{
		"velero.io/backup-name": "b", "velero.io/backup-uid": string(b.backup.UID), "velero.io/pvc-uid": string(claim.UID), "velero.io/async-operation-id": r.OperationID,
	}, upload.Labels)
	require.Equal(t, "Backup", metav1.GetControllerOf(upload).Kind)
	snapshot := &snapshotv1.VolumeSnapshot{}
	require.NoError(t, b.Reader.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: upload.Spec.CSISnapshot.VolumeSnapshot}, snapshot))
	require.JSONEq(t, `{"name":"pv-c0","reclaimPolicy":"Delete","labels":{"zone":"z"}}`, upload.Annotations[csisnapshot.AnnotationVolume])
	require.Equal(t, "5Gi", upload.Annotations["velero.io/csi-volumesnapshot-restore-size"])
	require.Equal(t, v2alpha1.DataUploadSpec{
		SnapshotType: "CSI", CSISnapshot: &v2alpha1.CSISnapshotSpec{VolumeSnapshot: snapshot.Name, StorageClass: "fast", SnapshotClass: "only", Driver: driver},
		SourcePVC: "c0", SourceNamespace: "a", BackupStorageLocation: "default", OperationTimeout: metav1.Duration{Duration: time.Minute},
		DataMoverConfig: map[string]string{"ParallelFilesUpload": "3"},
	}, upload.Spec)
}

// A call whose answer was lost is repeated, also once the data is moved and the snapshot gone.
func TestARepeatedCallRequestsNoSecondMovement(t *testing.T) {
	b := newMoveBed(t)
	s, claim := b.newMover(t, "fast", "")
	first, err := callAction(t, s, csisnapshot.NameClaim, claim, "key")
	require.NoError(t, err)
	require.NoError(t, b.DiscardAll(t.Context(), csisnapshot.Owner{Name: "b", UID: b.backup.UID}))
	s, _ = b.newMover(t, "fast", "node-agent runs")
	second, err := callAction(t, s, csisnapshot.NameClaim, claim, "key")
	require.NoError(t, err)
	require.Equal(t, first.OperationID, second.OperationID)
	require.Equal(t, first.PostOperation, second.PostOperation)
	require.Equal(t, decodeObject[any](t, first.Object), decodeObject[any](t, second.Object))
	require.Equal(t, 1, b.driver.Taken())
}

func TestAClaimWhoseDataCannotBeMovedHasNoSnapshot(t *testing.T) {
	for want, tc := range map[string]struct{ class, problem string }{
		"has no StorageClass":            {},
		"Velero's node-agent would take": {class: "fast", problem: "Velero's node-agent would take the request"},
	} {
		b := newMoveBed(t)
		s, claim := b.newMover(t, tc.class, tc.problem)
		_, err := callAction(t, s, csisnapshot.NameClaim, claim, "key")
		require.ErrorContains(t, err, want)
		b.requireNoSnapshots(t)
	}
}

// What is cut ahead of its turn is what its turn takes: none where it would be refused, or was requested before.
func TestNoSnapshotIsCutAheadThatIsNotMoved(t *testing.T) {
	b := newMoveBed(t)
	about := []action.Keyed{{Namespace: "a", Name: "c0", Key: "key"}}
	s, claim := b.newMover(t, "fast", "node-agent runs")
	s.Prestart(t.Context(), about)
	s.Wait()
	b.requireNoSnapshots(t)
	s, _ = b.newMover(t, "fast", "")
	s.Prestart(t.Context(), about)
	s.Wait()
	require.Equal(t, 1, b.driver.Taken())
	_, err := callAction(t, s, csisnapshot.NameClaim, claim, "key")
	require.NoError(t, err)
	require.NoError(t, b.DiscardAll(t.Context(), csisnapshot.Owner{Name: "b", UID: b.backup.UID}))
	s, _ = b.newMover(t, "fast", "")
	s.Prestart(t.Context(), about)
	s.Wait()
	require.Equal(t, 1, b.driver.Taken())
}

// A snapshot is removed if the API server refuses its DataUpload.
func TestASnapshotWithoutARequestIsRemoved(t *testing.T) {
	b := newMoveBed(t)
	s, claim := b.newMover(t, "fast", "")
	s.Client = refusingClient{s.Client}
	_, err := callAction(t, s, csisnapshot.NameClaim, claim, "key")
	require.ErrorContains(t, err, "create DataUpload")
	b.requireNoSnapshots(t)
}

// refusingClient creates no DataUploads.
type refusingClient struct{ client.Client }

func (c refusingClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if _, ok := o.(*v2alpha1.DataUpload); ok {
		return apierrors.NewForbidden(csisnapshot.Uploads, o.GetName(), nil)
	}
	return c.Client.Create(ctx, o, opts...)
}

// A claim that an earlier backup's data came back to is not taken for one of this backup.
func TestAPlainSnapshotNamesNoDataUpload(t *testing.T) {
	b := newBed(t, 1)
	claim := claimOf("c0")
	claim.Annotations = map[string]string{velerov1.AnnotationDataUploadName: "velero/old"}
	r, err := callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claim, "key")
	require.NoError(t, err)
	require.NotContains(t, decodeObject[corev1.PersistentVolumeClaim](t, r.Object).Annotations, velerov1.AnnotationDataUploadName)
	b.backup.Spec.SnapshotVolumes = ptr.To(false)
	r, err = callAction(t, b.newSnapshotter(), csisnapshot.NameClaim, claim, "key")
	require.NoError(t, err)
	require.NotContains(t, decodeObject[corev1.PersistentVolumeClaim](t, r.Object).Annotations, velerov1.AnnotationDataUploadName)
}
