package control_test

import (
	"context"
	"errors"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/csitest"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// uploadBed is a bed with a driver, a claim of it and a snapshot of that.
type uploadBed struct {
	*bed
	driver *csitest.Driver
	upload *v2alpha1.DataUpload
}

func newUploadBed(t *testing.T, b csitest.Behaviour) *uploadBed {
	labels := map[string]string{velerov1.LabelBackupName: "b", velerov1.LabelBackupUID: "b-uid"}
	selector := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "topology.kubernetes.io/zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"z"}},
	}}}}
	u := &uploadBed{
		bed: newBed(t,
			&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.x", ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain)},
			&snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Driver: "csi.x", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete},
			&corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "db-uid"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-db"},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-db"}, Spec: corev1.PersistentVolumeSpec{
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: selector}, PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.x", VolumeHandle: "h"}},
			}},
			&snapshotv1.VolumeSnapshot{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "velero-db-x", UID: "vs-uid", Labels: labels, CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0))},
				Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("db")}, VolumeSnapshotClassName: ptr.To("class")},
			},
		),
		upload: &v2alpha1.DataUpload{
			ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "b-1", UID: "b-1-uid", CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0)), Labels: map[string]string{
				velerov1.LabelBackupName: "b", velerov1.LabelBackupUID: "b-uid", velerov1.LabelPVCUID: "db-uid", velerov1.LabelAsyncOperation: "du-b-uid.db-uid",
			}},
			Spec: v2alpha1.DataUploadSpec{
				SnapshotType: "CSI", CSISnapshot: &v2alpha1.CSISnapshotSpec{VolumeSnapshot: "velero-db-x", StorageClass: "fast"}, SourcePVC: "db", SourceNamespace: "shop",
				BackupStorageLocation: "default", OperationTimeout: metav1.Duration{Duration: 10 * time.Minute}, DataMoverConfig: map[string]string{"ParallelFilesUpload": "3"},
			},
		},
	}
	u.stamps = true
	u.driver = &csitest.Driver{Client: u.client, Name: "csi.x", Provision: true, Bind: true}
	u.driver.Behave("shop/db", b)
	require.NoError(t, u.client.Create(t.Context(), u.upload))
	u.drive()
	return u
}

// drive has the driver reach its end.
func (u *uploadBed) drive() {
	u.t.Helper()
	for range 3 {
		require.NoError(u.t, u.driver.ReconcileOnce(u.t.Context()))
	}
}

// settle has controller, kubelet and driver work until nothing changes.
func (u *uploadBed) settle() {
	u.t.Helper()
	for range 4 {
		u.step(u.upload)
		u.drive()
	}
}

func (u *uploadBed) phase() string { return string(u.upload.Status.Phase) }

// requireNothingLeft checks that nothing is left of the snapshot and of what was made of it.
func (u *uploadBed) requireNothingLeft() {
	u.t.Helper()
	u.requireNoMover(u.upload.Name)
	for _, list := range []client.ObjectList{&snapshotv1.VolumeSnapshotList{}, &snapshotv1.VolumeSnapshotContentList{}} {
		require.NoError(u.t, u.client.List(u.t.Context(), list))
		require.Empty(u.t, itemsOf(list))
	}
	require.Error(u.t, u.client.Get(u.t.Context(), client.ObjectKeyFromObject(u.upload), &corev1.PersistentVolumeClaim{}))
	require.Empty(u.t, u.driver.Stored(), "the driver's snapshot")
}

func itemsOf(list client.ObjectList) (names []string) {
	switch l := list.(type) {
	case *snapshotv1.VolumeSnapshotList:
		for i := range l.Items {
			names = append(names, l.Items[i].Name)
		}
	case *snapshotv1.VolumeSnapshotContentList:
		for i := range l.Items {
			names = append(names, l.Items[i].Name)
		}
	}
	return names
}

func (u *uploadBed) claim() *corev1.PersistentVolumeClaim {
	u.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	require.NoError(u.t, u.client.Get(u.t.Context(), client.ObjectKeyFromObject(u.upload), claim))
	return claim
}

// The mover reads a volume that the driver makes of the snapshot, and all of it goes then, the snapshot itself last.
func TestASnapshotIsMoved(t *testing.T) {
	u := newUploadBed(t, csitest.Behaviour{})
	u.settle()
	require.Equal(t, "Accepted", u.phase(), u.upload.Status.Message)
	claim, pod := u.claim(), u.mover("b-1")
	require.NotEmpty(t, claim.Spec.VolumeName)
	require.Equal(t, "fast", *claim.Spec.StorageClassName)
	require.EqualValues(t, csitest.Size, claim.Spec.Resources.Requests.Storage().Value())
	require.Equal(t, corev1.PersistentVolumeFilesystem, *claim.Spec.VolumeMode)
	require.Empty(t, pod.Spec.NodeName, "the scheduler chooses the node")
	require.Nil(t, pod.Spec.Affinity, "the volume may be in any zone")
	require.Equal(t, "b-1", pod.Spec.Volumes[2].PersistentVolumeClaim.ClaimName)
	require.True(t, pod.Spec.Containers[0].VolumeMounts[2].ReadOnly)
	require.Equal(t, []string{"--create-repository", "--volume", "db", "--source", "/volume", "--claim-uid", "db-uid", "--operation-id", "du-b-uid.db-uid", "--parallel", "3"}, pod.Spec.Containers[0].Args[12:])
	twin := &snapshotv1.VolumeSnapshotContent{}
	require.NoError(t, u.client.Get(t.Context(), client.ObjectKey{Name: "b-1"}, twin))
	require.Equal(t, snapshotv1.VolumeSnapshotContentRetain, twin.Spec.DeletionPolicy)
	require.NotContains(t, twin.Labels, velerov1.LabelBackupName, "it is none of the backup's snapshots")

	u.run("b-1")
	u.settle()
	require.Equal(t, "InProgress", u.phase())
	pv := &corev1.PersistentVolume{}
	require.NoError(t, u.client.Get(t.Context(), client.ObjectKey{Name: claim.Spec.VolumeName}, pv))
	require.Equal(t, corev1.PersistentVolumeReclaimDelete, pv.Spec.PersistentVolumeReclaimPolicy, "its class retains volumes")
	require.Len(t, u.driver.Stored(), 1)

	u.end("b-1", outcome.Result{Phase: outcome.Completed, SnapshotID: "s-1", Bytes: 7, IncrementalBytes: 5})
	u.settle()
	require.Equal(t, "Completed", u.phase())
	require.Equal(t, "s-1", u.upload.Status.SnapshotID)
	require.EqualValues(t, 7, u.upload.Status.Progress.TotalBytes)
	require.EqualValues(t, 5, u.upload.Status.IncrementalBytes)
	require.Equal(t, v2alpha1.NodeOS("linux"), u.upload.Status.NodeOS)
	u.requireNothingLeft()
}

// A volume that is made for its first Pod may be possible in the zone of the source alone. A class that binds at once makes
// it in any: a mover that has to run in the source's could not use it.
func TestAMoverRunsWhereItsVolumeIsMade(t *testing.T) {
	u := newUploadBed(t, csitest.Behaviour{})
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}
	u.update(class, func() { class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer) })
	u.settle()
	terms := u.mover("b-1").Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	require.Equal(t, []string{"z"}, terms[0].MatchExpressions[0].Values)
}

// The nodes of a zone may be kept for one application by taints.
func TestAMoverToleratesWhatItsApplicationDoes(t *testing.T) {
	taint := corev1.Toleration{Key: "only", Operator: corev1.TolerationOpExists}
	user := newPod("db", "node-1")
	user.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, user.Spec.Tolerations = "db", []corev1.Toleration{taint}
	u := newUploadBed(t, csitest.Behaviour{})
	require.NoError(t, u.client.Create(t.Context(), user))
	u.settle()
	require.Equal(t, []corev1.Toleration{taint}, u.mover("b-1").Spec.Tolerations)

	d := newDownloadBed(t, storagev1.VolumeBindingImmediate)
	user.ResourceVersion = ""
	require.NoError(t, d.client.Create(t.Context(), user))
	d.settle()
	require.Equal(t, []corev1.Toleration{taint}, d.mover("r-1").Spec.Tolerations)
}

// Kubernetes binds any claim of a class to a volume that waits for one: its data is not the snapshot's, and not ours to remove.
func TestAVolumeThatWasThereBeforeIsKept(t *testing.T) {
	for name, begin := range map[string]func(u *uploadBed){
		"runs":  func(u *uploadBed) { u.run("b-1") },
		"ended": func(u *uploadBed) { u.end("b-1", outcome.Result{Phase: outcome.Completed, SnapshotID: "s-1"}) },
	} {
		t.Run(name, func(t *testing.T) {
			u := newUploadBed(t, csitest.Behaviour{})
			u.settle()
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: u.claim().Spec.VolumeName}}
			u.update(pv, func() {
				pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
				pv.CreationTimestamp = metav1.NewTime(u.clock.Now().Add(-time.Hour))
			})
			begin(u)
			u.settle()
			require.Equal(t, "Failed", u.phase())
			require.Contains(t, u.upload.Status.Message, "which was there before")
			u.requireNothingLeft()
			require.NoError(t, u.client.Get(t.Context(), client.ObjectKeyFromObject(pv), pv))
			require.Equal(t, corev1.PersistentVolumeReclaimRetain, pv.Spec.PersistentVolumeReclaimPolicy)
		})
	}
}

// What the driver says of a volume that it does not make is in the events of the claim alone.
func TestAMoverWithoutAVolumeNamesItsClaim(t *testing.T) {
	u := newUploadBed(t, csitest.Behaviour{})
	u.settle()
	u.setStatus("b-1", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "unbound claims"}}})
	u.clock.Step(prepareTimeout)
	u.settle()
	require.Equal(t, "Failed", u.phase())
	require.Contains(t, u.upload.Status.Message, "it is not scheduled: unbound claims; the events of Pod and claim velero/b-1 may say more")
	u.requireNothingLeft()
}

// A snapshot that takes hours costs no mover, and the wait for it does not count for the mover's start.
func TestAMoverWaitsForItsSnapshot(t *testing.T) {
	u := newUploadBed(t, csitest.Behaviour{Ready: 20})
	u.clock.Step(2 * prepareTimeout)
	require.Equal(t, 5*time.Second, u.step(u.upload))
	require.Empty(t, u.phase())
	require.Equal(t, "waits until VolumeSnapshot shop/velero-db-x is ready", u.upload.Status.Message)
	for range 6 {
		u.drive()
	}
	u.settle()
	require.Equal(t, "Accepted", u.phase())
	require.NotNil(t, u.mover("b-1"))
}

// Movers of claims count in all, and not for a node: it is the scheduler's to choose.
func TestUploadsWaitForAMover(t *testing.T) {
	u := newUploadBed(t, csitest.Behaviour{})
	u.configure(func(c *control.Config) { c.PerNode, c.Total = 1, 2 })
	other := u.upload.DeepCopy()
	other.Name, other.UID, other.ResourceVersion = "b-2", "b-2-uid", ""
	third := u.upload.DeepCopy()
	third.Name, third.UID, third.ResourceVersion = "b-3", "b-3-uid", ""
	for _, o := range []*v2alpha1.DataUpload{other, third} {
		require.NoError(t, u.client.Create(t.Context(), o))
	}
	u.step(u.upload)
	u.step(other)
	u.drive()
	u.step(other)
	require.NotNil(t, u.mover("b-2"))
	require.Equal(t, 5*time.Second, u.step(third))
	require.Empty(t, third.Status.Phase)
	require.Contains(t, third.Status.Message, "--movers")
	u.run("b-2")
	u.step(other)
	u.end("b-2", outcome.Result{Phase: outcome.Completed, SnapshotID: "s"})
	u.step(other)
	u.step(third)
	require.Equal(t, v2alpha1.DataMovePhase("Accepted"), third.Status.Phase)
}

// The driver may no longer know the snapshot that its objects name.
func TestATwinThatDoesNotBecomeReady(t *testing.T) {
	u := newUploadBed(t, csitest.Behaviour{})
	u.driver.Forget(u.driver.Stored()[0])
	u.settle()
	require.Equal(t, "Accepted", u.phase())
	require.Equal(t, time.Second, u.step(u.upload))
	require.Nil(t, u.mover("b-1"))
	u.clock.Step(prepareTimeout - time.Second)
	u.settle()
	require.Equal(t, "Failed", u.phase())
	require.Contains(t, u.upload.Status.Message, "VolumeSnapshot velero/b-1 did not become ready: snapshot physical-vs-uid does not exist")
	u.requireNothingLeft()
}

// The volume of a block device is one, whatever has become of the claim.
func TestADeviceIsMovedAsOne(t *testing.T) {
	u := newUploadBed(t, csitest.Behaviour{})
	content := &snapshotv1.VolumeSnapshotContent{}
	require.NoError(t, u.client.Get(t.Context(), client.ObjectKey{Name: "snapcontent-vs-uid"}, content))
	content.Spec.SourceVolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	require.NoError(t, u.client.Update(t.Context(), content))
	require.NoError(t, u.client.Delete(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}))
	u.settle()
	require.Equal(t, corev1.PersistentVolumeBlock, *u.claim().Spec.VolumeMode)
	require.Len(t, u.mover("b-1").Spec.Containers[0].VolumeDevices, 1)
	require.Nil(t, u.mover("b-1").Spec.Affinity)
}

// An error of the driver may pass until the snapshot has had its time.
func TestASnapshotThatDoesNotBecomeReady(t *testing.T) {
	u := newUploadBed(t, csitest.Behaviour{Ready: -1, Error: "quota"})
	u.clock.Step(10 * time.Minute)
	u.step(u.upload)
	require.Equal(t, "waits until VolumeSnapshot shop/velero-db-x is ready: quota", u.upload.Status.Message)
	u.clock.Step(time.Second)
	u.step(u.upload)
	require.Equal(t, "Failed", u.phase())
	require.Contains(t, u.upload.Status.Message, "did not become ready: quota")
}

// errKilled is the end of a controller around a write.
var errKilled = errors.New("killed")

// killer is a client whose controller is killed around one of its writes: before it, or after it.
type killer struct {
	client.Client
	left  int
	after bool
}

func (k *killer) around(write func() error) error {
	k.left--
	switch {
	case k.left > 0 || k.left < 0 && !k.after:
		return write()
	case k.left == 0 && k.after:
		return errors.Join(write(), errKilled)
	}
	return errKilled
}

func (k *killer) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return k.around(func() error { return k.Client.Create(ctx, o, opts...) })
}

func (k *killer) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return k.around(func() error { return k.Client.Delete(ctx, o, opts...) })
}

func (k *killer) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return k.around(func() error { return k.Client.Patch(ctx, o, p, opts...) })
}

// A controller that is killed at any write leaves nothing behind: its successor moves the snapshot.
func TestASuccessorGoesOnWithASnapshot(t *testing.T) {
	for n := 1; ; n++ {
		u := newUploadBed(t, csitest.Behaviour{})
		k := &killer{Client: u.client, left: n, after: n%2 == 0}
		u.configure(func(c *control.Config) { c.Client = k })
		for idle := 0; idle < 4; {
			if _, err := u.controller.Reconcile(t.Context(), u.upload, client.ObjectKeyFromObject(u.upload)); err != nil {
				require.ErrorIs(t, err, errKilled, "write %d", n)
				u.restart()
			}
			u.drive()
			pod := u.mover("b-1")
			switch {
			case pod == nil && len(u.driver.Stored()) == 0 && u.driver.Made() > 0:
				idle++
			case pod != nil && pod.Status.Phase == "":
				u.run("b-1")
			case pod != nil && pod.Status.Phase == corev1.PodRunning && len(u.claim().Spec.VolumeName) > 0:
				require.NoError(t, u.client.Get(t.Context(), client.ObjectKeyFromObject(u.upload), u.upload))
				if u.phase() == "InProgress" {
					u.end("b-1", outcome.Result{Phase: outcome.Completed, SnapshotID: "s-1"})
				}
			}
		}
		require.NoError(t, u.client.Get(t.Context(), client.ObjectKeyFromObject(u.upload), u.upload))
		require.Equal(t, "Completed", u.phase(), "write %d: %s", n, u.upload.Status.Message)
		u.requireNothingLeft()
		if k.left > 0 {
			require.Greater(t, n, 10)
			return
		}
	}
}

// A drained node, or a mover that was killed, costs the time since the last checkpoint. What would come again ends the
// request.
func TestAMoverThatEndedForAPassingReasonIsReplaced(t *testing.T) {
	killed := corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}
	for name, tc := range map[string]struct {
		end      func(u *uploadBed)
		late     bool
		replaced bool
	}{
		"drained":      {end: func(u *uploadBed) { u.end("b-1", outcome.Result{Phase: outcome.Canceled, Message: "SIGTERM"}) }, late: true, replaced: true},
		"evicted":      {end: func(u *uploadBed) { u.setStatus("b-1", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}) }, late: true, replaced: true},
		"deleted":      {end: func(u *uploadBed) { require.NoError(u.t, u.client.Delete(u.t.Context(), u.mover("b-1"))) }, late: true, replaced: true},
		"killed":       {end: func(u *uploadBed) { u.terminate("b-1", corev1.PodFailed, killed) }, replaced: true},
		"killed later": {end: func(u *uploadBed) { u.terminate("b-1", corev1.PodFailed, killed) }, late: true},
		"out of memory": {end: func(u *uploadBed) {
			u.terminate("b-1", corev1.PodFailed, corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"})
		}},
		"bucket is away": {end: func(u *uploadBed) { u.end("b-1", outcome.Result{Phase: outcome.Failed, Message: "no bucket"}) }},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUploadBed(t, csitest.Behaviour{})
			u.settle()
			u.run("b-1")
			u.settle()
			if tc.late {
				u.clock.Step(2 * prepareTimeout)
			}
			tc.end(u)
			u.clock.Step(time.Minute)
			u.settle()
			if !tc.replaced {
				require.Equal(t, "Failed", u.phase())
				u.requireNothingLeft()
				return
			}
			require.Equal(t, "InProgress", u.phase(), u.upload.Status.Message)
			require.Empty(t, u.mover("b-1").Status.Phase, "it is another Pod")
			u.run("b-1")
			u.settle()
			u.end("b-1", outcome.Result{Phase: outcome.Completed, SnapshotID: "s-1"})
			u.settle()
			require.Equal(t, "Completed", u.phase())
			u.requireNothingLeft()
		})
	}
}

// A request by hand may name anybody's snapshot.
func TestASnapshotThatIsNoBackupsStays(t *testing.T) {
	u := newUploadBed(t, csitest.Behaviour{})
	mine := &snapshotv1.VolumeSnapshot{}
	require.NoError(t, u.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "velero-db-x"}, mine))
	mine.Labels = nil
	require.NoError(t, u.client.Update(t.Context(), mine))
	u.update(u.upload, func() { delete(u.upload.Labels, velerov1.LabelBackupName) })
	u.settle()
	u.run("b-1")
	u.settle()
	u.end("b-1", outcome.Result{Phase: outcome.Completed, SnapshotID: "s-1"})
	u.settle()
	require.Equal(t, "Completed", u.phase())
	require.Len(t, u.driver.Stored(), 1)
	var left snapshotv1.VolumeSnapshotContentList
	require.NoError(t, u.client.List(t.Context(), &left))
	require.Equal(t, []string{"snapcontent-vs-uid"}, itemsOf(&left), "the twin is gone")
}

func TestAnUploadIsCanceled(t *testing.T) {
	for stage := range 3 {
		u := newUploadBed(t, csitest.Behaviour{})
		if stage > 0 {
			u.settle()
		}
		if stage > 1 {
			u.run("b-1")
			u.settle()
		}
		u.update(u.upload, func() { u.upload.Spec.Cancel = true })
		u.settle()
		require.Equal(t, "Canceled", u.phase(), "stage %d", stage)
		require.Nil(t, u.mover("b-1"))
		if stage > 0 { // the backup removes what no mover began with
			u.requireNothingLeft()
		}
	}
}

// No request owns the content of a twin: it goes when the controller hears of the end of the request, or when the next
// one starts.
func TestTwinsOfRequestsThatAreGone(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		u := newUploadBed(t, csitest.Behaviour{})
		u.settle()
		require.NoError(t, u.client.Delete(t.Context(), u.upload))
		other := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"holdfast.io/mover": "upload"}}, Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "elsewhere", Name: "other"},
		}}
		require.NoError(t, u.client.Create(t.Context(), other))
		if restarted {
			require.NoError(t, u.controller.RemoveOrphans(t.Context()))
		} else {
			u.step(u.upload)
		}
		u.drive()
		var left snapshotv1.VolumeSnapshotContentList
		require.NoError(t, u.client.List(t.Context(), &left))
		require.ElementsMatch(t, []string{"other", "snapcontent-vs-uid"}, itemsOf(&left), "another server's, and the backup's own")
		require.Len(t, u.driver.Stored(), 1)
	}
}

func TestUploadsThatAreNotBegun(t *testing.T) {
	for message, spoil := range map[string]func(u *uploadBed){
		"is gone": func(u *uploadBed) { u.upload.Spec.CSISnapshot.VolumeSnapshot = "other" },
		`StorageClass: storageclasses.storage.k8s.io "manual" not found`: func(u *uploadBed) { u.upload.Spec.CSISnapshot.StorageClass = "manual" },
		"spec.csiSnapshot is required":                                   func(u *uploadBed) { u.upload.Spec.CSISnapshot = nil },
		"VolumeSnapshotContent b-1 exists and is not of this request": func(u *uploadBed) {
			require.NoError(u.t, u.client.Create(u.t.Context(), &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "b-1"}}))
		},
	} {
		u := newUploadBed(t, csitest.Behaviour{})
		u.update(u.upload, func() { spoil(u) })
		u.settle()
		require.Equal(t, "Failed", u.phase())
		require.Contains(t, u.upload.Status.Message, message)
		require.Len(t, u.driver.Stored(), 1, "%s: the snapshot is left to the backup", message)
	}
	u := newUploadBed(t, csitest.Behaviour{})
	u.update(u.upload, func() { u.upload.Spec.DataMover = "acme" })
	u.settle()
	require.Empty(t, u.phase(), "another data mover serves it")
	require.Nil(t, u.mover("b-1"))
}
