package restored_test

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/csitest"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/restored"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// world is a cluster with a driver, in which a restore made a pair for claim app/data.
type world struct {
	client  client.Client
	driver  *csitest.Driver
	clock   *clocktesting.FakeClock
	sweeper *restored.Sweeper
}

const snapshotJSON = `{"metadata":{"name":"velero-data-x7k2p","namespace":"app","labels":{"velero.io/backup-name":"b","velero.io/backup-uid":"u"}},
	"status":{"boundVolumeSnapshotContentName":"c"}}`

const contentJSON = `{"metadata":{"name":"c","annotations":{"snapshot.storage.kubernetes.io/volumesnapshot-being-created":"yes"}},
	"spec":{"driver":"disk.example.com","deletionPolicy":"Delete"},"status":{"snapshotHandle":"physical"}}`

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{clock: clocktesting.NewFakeClock(time.Now())}
	w.client = fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	w.driver = &csitest.Driver{Client: w.client, Name: "disk.example.com"}
	w.driver.Keep("physical", "data")
	w.sweeper = &restored.Sweeper{API: csisnapshot.API{Reader: w.client, Client: w.client, Clock: w.clock, Log: slog.New(slog.DiscardHandler)}, Namespace: "velero"}
	w.makePair(t, "velero")
	return w
}

// makePair makes the objects as a restore does.
func (w *world) makePair(t *testing.T, server string) (name string) {
	t.Helper()
	stored, err := restored.Read([]byte(snapshotJSON), []byte(contentJSON))
	require.NoError(t, err)
	of := restored.Restore{Server: server, UID: types.UID("uid-" + server), Labels: map[string]string{velerov1.LabelRestoreName: "r"}}
	in := types.NamespacedName{Namespace: "app", Name: restored.Name(of.UID, "velero-data-x7k2p")}
	require.NoError(t, w.client.Create(t.Context(), stored.Content(of, in, "")))
	require.NoError(t, w.client.Create(t.Context(), stored.Snapshot(of, in)))
	w.reconcileDriver(t)
	return in.Name
}

func (w *world) reconcileDriver(t *testing.T) {
	t.Helper()
	for range 4 {
		require.NoError(t, w.driver.ReconcileOnce(t.Context()))
	}
}

func (w *world) createRestore(t *testing.T, phase velerov1.RestorePhase) {
	t.Helper()
	now := metav1.NewTime(w.clock.Now())
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", UID: "uid-velero"}}
	r.Status.Phase = phase
	if phase.Terminal() {
		r.Status.CompletionTimestamp = &now
	}
	require.NoError(t, w.client.Create(t.Context(), r))
}

func (w *world) createClaim(t *testing.T, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: restored.Name("uid-velero", "velero-data-x7k2p")},
	}}
	c.Status.Phase = phase
	require.NoError(t, w.client.Create(t.Context(), c))
	return c
}

// leftAfterPass returns how many snapshot objects there are after a pass.
func (w *world) leftAfterPass(t *testing.T) int {
	t.Helper()
	require.NoError(t, w.sweeper.Pass(t.Context()))
	w.reconcileDriver(t)
	var vs snapshotv1.VolumeSnapshotList
	var vsc snapshotv1.VolumeSnapshotContentList
	require.NoError(t, w.client.List(t.Context(), &vs))
	require.NoError(t, w.client.List(t.Context(), &vsc))
	require.Equal(t, []string{"physical"}, w.driver.Stored(), "the snapshot of the backup stays, whatever a restore does")
	return len(vs.Items) + len(vsc.Items)
}

func TestAPairStaysAsLongAsItIsNeeded(t *testing.T) {
	w := newWorld(t)
	w.createRestore(t, velerov1.RestorePhaseCompleted)
	c := w.createClaim(t, corev1.ClaimPending)
	require.Equal(t, 2, w.leftAfterPass(t), "a request of a runner that lost its claim may be under way")
	w.clock.Step(time.Minute)
	require.Equal(t, 2, w.leftAfterPass(t), "the claim is not bound")
	c.Status.Phase = corev1.ClaimBound
	require.NoError(t, w.client.Status().Update(t.Context(), c))
	require.Zero(t, w.leftAfterPass(t))
}

func TestAPairOfARestoreThatIsUnderWayStays(t *testing.T) {
	for _, phase := range []velerov1.RestorePhase{velerov1.RestorePhaseInProgress, velerov1.RestorePhaseWaitingForPluginOperations, velerov1.RestorePhaseFinalizing} {
		w := newWorld(t)
		w.createRestore(t, phase)
		w.clock.Step(time.Hour)
		require.Equal(t, 2, w.leftAfterPass(t), phase)
	}
}

// A restore that fails or is cancelled before it has created the claim leaves the pair.
func TestAPairWithoutAClaimGoes(t *testing.T) {
	w := newWorld(t)
	w.createRestore(t, velerov1.RestorePhaseFailed)
	w.clock.Step(time.Minute)
	require.Zero(t, w.leftAfterPass(t))
	w = newWorld(t)
	require.Zero(t, w.leftAfterPass(t), "nor does the Restore exist any more")
}

func TestAPairOfAnotherServerStays(t *testing.T) {
	w := newWorld(t)
	other := w.makePair(t, "other")
	require.Equal(t, 2, w.leftAfterPass(t))
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: other}, &snapshotv1.VolumeSnapshotContent{}))
}

// With its namespace the VolumeSnapshot goes, and nothing else would remove the content.
func TestAContentWhoseSnapshotIsGoneGoes(t *testing.T) {
	w := newWorld(t)
	vs := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: restored.Name("uid-velero", "velero-data-x7k2p")}}
	require.NoError(t, w.client.Delete(t.Context(), vs))
	w.reconcileDriver(t)
	require.Zero(t, w.leftAfterPass(t))
}

// A deletion policy that was changed must not remove the snapshot of the backup.
func TestAPolicyThatWasChangedRemovesNoData(t *testing.T) {
	w := newWorld(t)
	vsc := &snapshotv1.VolumeSnapshotContent{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: restored.Name("uid-velero", "velero-data-x7k2p")}, vsc))
	vsc.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentDelete
	require.NoError(t, w.client.Update(t.Context(), vsc))
	require.Zero(t, w.leftAfterPass(t))
}

func TestSnapshotsOfBackupsAreNotSwept(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.client.Create(t.Context(), &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "own"}}))
	require.Equal(t, 1, w.leftAfterPass(t))
}

func TestStaleAnnotationsStayBehind(t *testing.T) {
	stored, err := restored.Read([]byte(snapshotJSON), []byte(contentJSON))
	require.NoError(t, err)
	of := restored.Restore{Server: "velero", UID: "u"}
	vsc := stored.Content(of, types.NamespacedName{Namespace: "z", Name: "n"}, "")
	require.Equal(t, map[string]string{restored.AnnotationServer: "velero"}, vsc.Annotations)
	require.Nil(t, vsc.Spec.VolumeSnapshotClassName)
	vs := stored.Snapshot(of, types.NamespacedName{Namespace: "z", Name: "n"})
	require.NotContains(t, vs.Labels, velerov1.LabelBackupUID)
	body, err := restored.Encode(vs)
	require.NoError(t, err)
	keys := []string{}
	for key := range body {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	require.Equal(t, []string{"apiVersion", "kind", "metadata", "spec"}, keys)
	require.NotContains(t, body["metadata"], "creationTimestamp")
}

func TestBytesOfOthers(t *testing.T) {
	for _, bad := range []string{"", "[]", `{"status":7}`} {
		_, err := restored.ContentOf([]byte(bad))
		require.Error(t, err, bad)
		_, err = restored.Read([]byte(snapshotJSON), []byte(bad))
		require.Error(t, err, bad)
	}
	_, err := restored.ContentOf([]byte(`{"status":{}}`))
	require.ErrorIs(t, err, restored.ErrUnbound)
	_, err = restored.Read([]byte(`{}`), []byte(`{"spec":{"driver":"d"},"status":{"snapshotHandle":""}}`))
	require.ErrorIs(t, err, restored.ErrUncut)
	_, err = restored.Read([]byte(`{}`), []byte(`{"status":{"snapshotHandle":"h"}}`))
	require.ErrorContains(t, err, "spec.driver")
}
