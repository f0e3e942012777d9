package control_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

const (
	nodeAnnotation = "volume.kubernetes.io/selected-node"
	pvcProtection  = "kubernetes.io/pvc-protection"
)

// downloadBed is a bed with a claim that waits for its data, and a class that provisions volumes.
type downloadBed struct {
	*bed
	download *v2alpha1.DataDownload
	target   *corev1.PersistentVolumeClaim
	restore  *velerov1.Restore
}

func newDownloadBed(t *testing.T, mode storagev1.VolumeBindingMode, change ...func(*downloadBed)) *downloadBed {
	began := metav1.NewTime(time.Unix(1_700_000_000, 0))
	d := &downloadBed{
		download: &v2alpha1.DataDownload{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: server, Name: "r-1", UID: "r-1-uid", CreationTimestamp: began,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "velero.io/v1", Kind: "Restore", Name: "r", UID: "r-uid", Controller: ptr.To(true)}},
			},
			Spec: v2alpha1.DataDownloadSpec{
				TargetVolume: v2alpha1.TargetVolumeSpec{Namespace: "shop", PVC: "db"}, BackupStorageLocation: "default", SnapshotID: "s-1",
				SourceNamespace: "source", DataMoverConfig: map[string]string{"ParallelFilesDownload": "3"},
			},
		},
		target: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "db-uid", Annotations: map[string]string{"nfs.io/storage-path": "p", "volume.beta.kubernetes.io/x": "y"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: ptr.To("fast"),
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				Selector:  &metav1.LabelSelector{MatchLabels: map[string]string{velerov1.LabelDynamicPV: "shop.db.1"}},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
		},
		restore: &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "r", UID: "r-uid"}, Status: velerov1.RestoreStatus{Phase: velerov1.RestorePhaseInProgress}},
	}
	d.bed = newBed(t, d.restore, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.x", VolumeBindingMode: &mode, ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete)})
	for _, c := range change {
		c(d)
	}
	d.stamps = true
	for _, o := range []client.Object{d.target, d.download} {
		if o.GetName() != "" {
			require.NoError(t, d.client.Create(t.Context(), o))
		}
	}
	return d
}

// settle has controller and cluster work until nothing changes.
func (d *downloadBed) settle() {
	d.t.Helper()
	for range 8 {
		d.step(d.download)
		d.drive()
	}
}

// drive does what provisioner, volume controller and the protection of claims do.
func (d *downloadBed) drive() {
	d.t.Helper()
	ctx := d.t.Context()
	var claims corev1.PersistentVolumeClaimList
	require.NoError(d.t, d.client.List(ctx, &claims))
	for i := range claims.Items {
		c := &claims.Items[i]
		switch {
		case c.Name == "data-web-0":
		case c.DeletionTimestamp != nil:
			if d.mover(c.Name) == nil && controllerutil.RemoveFinalizer(c, pvcProtection) {
				require.NoError(d.t, d.client.Update(ctx, c))
			}
		case c.Spec.VolumeName == "" && c.Spec.Selector == nil && d.mover(c.Name) != nil:
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(c.UID)}, Spec: corev1.PersistentVolumeSpec{
				StorageClassName: *c.Spec.StorageClassName, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				ClaimRef: &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			}}
			require.NoError(d.t, client.IgnoreAlreadyExists(d.client.Create(ctx, pv)))
			c.Spec.VolumeName = pv.Name
			controllerutil.AddFinalizer(c, pvcProtection)
			require.NoError(d.t, d.client.Update(ctx, c))
		case c.Spec.VolumeName != "":
			d.bind(c)
		}
	}
	d.reclaim()
}

// bind binds a claim to the volume that it names, if that is for it.
func (d *downloadBed) bind(c *corev1.PersistentVolumeClaim) {
	pv := &corev1.PersistentVolume{}
	if err := d.client.Get(d.t.Context(), client.ObjectKey{Name: c.Spec.VolumeName}, pv); apierrors.IsNotFound(err) {
		return
	}
	ref := pv.Spec.ClaimRef
	if ref == nil || ref.Namespace != c.Namespace || ref.Name != c.Name || ref.UID != "" && ref.UID != c.UID {
		return
	}
	ref.UID = c.UID
	require.NoError(d.t, d.client.Update(d.t.Context(), pv))
	pv.Status.Phase, c.Status.Phase = corev1.VolumeBound, corev1.ClaimBound
	require.NoError(d.t, d.client.Status().Update(d.t.Context(), pv))
	require.NoError(d.t, d.client.Status().Update(d.t.Context(), c))
}

// reclaim releases the volumes whose claims are gone.
func (d *downloadBed) reclaim() {
	var pvs corev1.PersistentVolumeList
	require.NoError(d.t, d.client.List(d.t.Context(), &pvs))
	for i := range pvs.Items {
		pv := &pvs.Items[i]
		ref := pv.Spec.ClaimRef
		if ref == nil || ref.UID == "" {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		if err := d.client.Get(d.t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, claim); err == nil && claim.UID == ref.UID {
			continue
		}
		if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			require.NoError(d.t, d.client.Delete(d.t.Context(), pv))
			continue
		}
		pv.Status.Phase = corev1.VolumeReleased
		require.NoError(d.t, d.client.Status().Update(d.t.Context(), pv))
	}
}

func (d *downloadBed) phase() string { return string(d.download.Status.Phase) }

// volumes are the PersistentVolumes but for that of another claim.
func (d *downloadBed) volumes() (names []string) {
	var pvs corev1.PersistentVolumeList
	require.NoError(d.t, d.client.List(d.t.Context(), &pvs))
	for i := range pvs.Items {
		if name := pvs.Items[i].Name; name != "pv-1" {
			names = append(names, name)
		}
	}
	return names
}

func (d *downloadBed) requireNothingLeft() {
	d.t.Helper()
	d.requireNoMover(d.download.Name)
	err := d.client.Get(d.t.Context(), client.ObjectKeyFromObject(d.download), &corev1.PersistentVolumeClaim{})
	require.True(d.t, apierrors.IsNotFound(err), "the claim of the mover")
}

// requireFilled checks that the target has the one volume, as its class makes volumes.
func (d *downloadBed) requireFilled() {
	d.t.Helper()
	require.Equal(d.t, "Completed", d.phase(), d.download.Status.Message)
	d.requireNothingLeft()
	require.NoError(d.t, d.client.Get(d.t.Context(), client.ObjectKeyFromObject(d.target), d.target))
	require.Equal(d.t, corev1.ClaimBound, d.target.Status.Phase)
	require.Equal(d.t, []string{d.target.Spec.VolumeName}, d.volumes())
	pv := &corev1.PersistentVolume{}
	require.NoError(d.t, d.client.Get(d.t.Context(), client.ObjectKey{Name: d.target.Spec.VolumeName}, pv))
	require.Equal(d.t, d.target.UID, pv.Spec.ClaimRef.UID)
	require.Equal(d.t, corev1.PersistentVolumeReclaimDelete, pv.Spec.PersistentVolumeReclaimPolicy)
	require.Equal(d.t, "shop.db.1", pv.Labels[velerov1.LabelDynamicPV])
}

// The mover writes a volume like the one that the claim asks for; the claim gets it once all data is there.
func TestAClaimIsFilled(t *testing.T) {
	d := newDownloadBed(t, storagev1.VolumeBindingImmediate)
	d.settle()
	require.Equal(t, "Accepted", d.phase(), d.download.Status.Message)
	claim, pod := &corev1.PersistentVolumeClaim{}, d.mover("r-1")
	require.NoError(t, d.client.Get(t.Context(), client.ObjectKeyFromObject(d.download), claim))
	require.Equal(t, []any{"fast", d.target.Spec.AccessModes, d.target.Spec.Resources}, []any{*claim.Spec.StorageClassName, claim.Spec.AccessModes, claim.Spec.Resources})
	require.Equal(t, map[string]string{"nfs.io/storage-path": "p"}, claim.Annotations)
	require.Nil(t, claim.Spec.Selector)
	require.True(t, metav1.IsControlledBy(claim, d.download))
	require.Nil(t, pod.Spec.Affinity)
	require.Equal(t, "r-1", pod.Spec.Volumes[2].PersistentVolumeClaim.ClaimName)
	require.False(t, pod.Spec.Containers[0].VolumeMounts[2].ReadOnly)
	require.Equal(t, []string{"--namespace", "source"}, pod.Spec.Containers[0].Args[6:8], "the repository is that of the backup's namespace")
	require.Equal(t, []string{"--snapshot", "s-1", "--target", "/volume", "--overwrite", "--parallel", "3"}, pod.Spec.Containers[0].Args[12:])

	d.run("r-1")
	d.settle()
	require.Equal(t, "InProgress", d.phase())
	require.NoError(t, d.client.Get(t.Context(), client.ObjectKeyFromObject(d.target), d.target))
	require.Empty(t, d.target.Spec.VolumeName, "no Pod sees half of the data")
	d.end("r-1", outcome.Result{Phase: outcome.Completed, Bytes: 9})
	d.settle()
	d.requireFilled()
	require.Equal(t, velerov1.DataMoveOperationProgress{BytesDone: 9, TotalBytes: 9}, d.download.Status.Progress)
}

func TestABlockVolumeIsFilled(t *testing.T) {
	d := newDownloadBed(t, storagev1.VolumeBindingImmediate, func(d *downloadBed) { d.target.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) })
	d.settle()
	require.Equal(t, []corev1.VolumeDevice{{Name: "volume", DevicePath: "/volume"}}, d.mover("r-1").Spec.Containers[0].VolumeDevices)
}

// A volume that is made for the first Pod has to be where that Pod can run. Where there will be no Pod, any node will do.
func TestAVolumeIsMadeWhereItsPodRuns(t *testing.T) {
	user := func(node string) *corev1.Pod {
		pod := newPod("db", node)
		pod.Name, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "user", "db"
		return pod
	}
	d := newDownloadBed(t, storagev1.VolumeBindingWaitForFirstConsumer)
	d.settle()
	require.Empty(t, d.phase())
	require.Contains(t, d.download.Status.Message, "or the restore has made all Pods")
	require.NoError(t, d.client.Create(t.Context(), user("")))
	d.update(d.restore, func() { d.restore.Status.Phase = velerov1.RestorePhaseWaitingForPluginOperations })
	d.settle()
	require.Empty(t, d.phase())
	require.Equal(t, "waits until Pod shop/user, which uses the claim, is scheduled", d.download.Status.Message)
	d.update(d.target, func() { d.target.Annotations[nodeAnnotation] = "node-7" })
	d.settle()
	require.Equal(t, "Accepted", d.phase())
	terms := d.mover("r-1").Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	require.Equal(t, "metadata.name", terms[0].MatchFields[0].Key)
	require.Equal(t, []string{"node-7"}, terms[0].MatchFields[0].Values)
	require.Empty(t, d.mover("r-1").Spec.NodeName, "the scheduler has the volume be made")

	t.Run("no Pod", func(t *testing.T) {
		d := newDownloadBed(t, storagev1.VolumeBindingWaitForFirstConsumer)
		require.NoError(t, d.client.Delete(t.Context(), d.restore))
		d.settle()
		require.Equal(t, "Accepted", d.phase())
		require.Nil(t, d.mover("r-1").Spec.Affinity)
	})
}

// A node that is drained once the volume is there does not come back.
func TestAMoverOfAVolumeThatExistsRunsOnAnyNode(t *testing.T) {
	d := newDownloadBed(t, storagev1.VolumeBindingWaitForFirstConsumer)
	d.update(d.target, func() { d.target.Annotations[nodeAnnotation] = "node-7" })
	d.settle()
	require.NotNil(t, d.mover("r-1").Spec.Affinity)
	d.run("r-1")
	d.settle()
	d.end("r-1", outcome.Result{Phase: outcome.Canceled, Message: "SIGTERM"})
	d.clock.Step(time.Minute)
	d.settle()
	require.Equal(t, "InProgress", d.phase(), d.download.Status.Message)
	require.Nil(t, d.mover("r-1").Spec.Affinity)
}

// A volume that is only read has to be written once.
func TestAReadOnlyClaimIsFilled(t *testing.T) {
	readOnly := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	d := newDownloadBed(t, storagev1.VolumeBindingImmediate, func(d *downloadBed) { d.target.Spec.AccessModes = readOnly })
	d.settle()
	claim := &corev1.PersistentVolumeClaim{}
	require.NoError(t, d.client.Get(t.Context(), client.ObjectKeyFromObject(d.download), claim))
	require.Equal(t, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, claim.Spec.AccessModes)
	d.run("r-1")
	d.settle()
	d.end("r-1", outcome.Result{Phase: outcome.Completed})
	d.settle()
	d.requireFilled()
	pv := &corev1.PersistentVolume{}
	require.NoError(t, d.client.Get(t.Context(), client.ObjectKey{Name: d.target.Spec.VolumeName}, pv))
	require.Equal(t, readOnly, pv.Spec.AccessModes, "else the claim cannot be bound to it")
}

// Velero's server makes the request before the claim.
func TestADownloadWaitsForItsClaim(t *testing.T) {
	d := newDownloadBed(t, storagev1.VolumeBindingImmediate, func(d *downloadBed) { d.download.Spec.TargetVolume.PVC = "late" })
	d.settle()
	require.Empty(t, d.phase())
	require.Equal(t, "waits for claim shop/late", d.download.Status.Message)
	d.clock.Step(prepareTimeout)
	d.settle()
	require.Equal(t, "Failed", d.phase())
	require.Equal(t, "claim shop/late is gone", d.download.Status.Message)
}

func TestClaimsThatAreNotFilled(t *testing.T) {
	for message, spoil := range map[string]func(d *downloadBed){
		"claim shop/db has volume v already: nothing is written to it": func(d *downloadBed) { d.target.Spec.VolumeName = "v" },
		"has no selector velero.io/dynamic-pv-restore":                 func(d *downloadBed) { d.target.Spec.Selector = nil },
		"has no StorageClass":              func(d *downloadBed) { d.target.Spec.StorageClassName = ptr.To("") },
		`"gone" not found`:                 func(d *downloadBed) { d.target.Spec.StorageClassName = ptr.To("gone") },
		"backup storage location \"gone\"": func(d *downloadBed) { d.download.Spec.BackupStorageLocation = "gone" },
	} {
		t.Run(message, func(t *testing.T) {
			d := newDownloadBed(t, storagev1.VolumeBindingImmediate, spoil)
			d.settle()
			require.Equal(t, "Failed", d.phase())
			require.Contains(t, d.download.Status.Message, message)
			d.requireNothingLeft()
			require.Empty(t, d.volumes())
		})
	}
}

// What fails or is canceled leaves the claim as it was, and no volume.
func TestADownloadThatDoesNotEndLeavesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(d *downloadBed)
		phase   string
		message string
	}{
		"the mover fails": {func(d *downloadBed) { d.end("r-1", outcome.Result{Phase: outcome.Failed, Message: "no bucket"}) }, "Failed", "no bucket"},
		"a file is missing": {func(d *downloadBed) {
			d.end("r-1", outcome.Result{Phase: outcome.PartiallyFailed, Message: "entries that are not whole: 1", Rules: map[outcome.Rule]int64{outcome.Unreadable: 1}})
		}, "Failed", "not whole"},
		"canceled": {func(d *downloadBed) { d.update(d.download, func() { d.download.Spec.Cancel = true }) }, "Canceled", "canceled"},
		"the class retains": {func(d *downloadBed) {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: d.volumes()[0]}}
			d.update(pv, func() { pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain })
			d.end("r-1", outcome.Result{Phase: outcome.Failed, Message: "no bucket"})
		}, "Failed", "no bucket"},
		"the claim is gone": {func(d *downloadBed) {
			require.NoError(d.t, d.client.Delete(d.t.Context(), d.target))
			d.end("r-1", outcome.Result{Phase: outcome.Completed})
		}, "Failed", "claim shop/db is gone"},
		"the claim has another volume": {func(d *downloadBed) {
			d.update(d.target, func() { d.target.Spec.VolumeName = "pv-1" })
			d.end("r-1", outcome.Result{Phase: outcome.Completed})
		}, "Failed", "has volume pv-1 already"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDownloadBed(t, storagev1.VolumeBindingImmediate)
			d.settle()
			d.run("r-1")
			d.settle()
			require.Len(t, d.volumes(), 1)
			tc.happens(d)
			d.settle()
			require.Equal(t, tc.phase, d.phase())
			require.Contains(t, d.download.Status.Message, tc.message)
			d.requireNothingLeft()
			require.Empty(t, d.volumes())
		})
	}
}

// An owner that cannot be set, as on NFS that squashes root, is an error. The content comes back all the same.
func TestContentWithoutItsOwnersIsBound(t *testing.T) {
	d := newDownloadBed(t, storagev1.VolumeBindingImmediate)
	d.settle()
	d.run("r-1")
	d.settle()
	d.end("r-1", outcome.Result{
		Phase: outcome.PartiallyFailed, Message: "entries that are not whole: 1", Rules: map[outcome.Rule]int64{outcome.Metadata: 1},
		Entries: []outcome.Entry{{Path: "a", Rule: outcome.Metadata, Error: "EPERM"}},
	})
	d.settle()
	require.Equal(t, "Failed", d.phase())
	require.Equal(t, "the claim has its content, but: entries that are not whole: 1; a: metadata: EPERM", d.download.Status.Message)
	d.download.Status.Phase = v2alpha1.DataMovePhase(velerov1.PodVolumePhaseCompleted) // but for that
	d.requireFilled()
}

// What becomes of a volume that its claim got is no longer the request's business, however that ended.
func TestARetainedVolumeOutlivesItsClaim(t *testing.T) {
	for _, result := range []outcome.Result{
		{Phase: outcome.Completed}, {Phase: outcome.PartiallyFailed, Rules: map[outcome.Rule]int64{outcome.Metadata: 1}, Message: "not whole"},
	} {
		d := newDownloadBed(t, storagev1.VolumeBindingImmediate)
		d.settle()
		d.run("r-1")
		d.settle()
		d.end("r-1", result)
		d.settle()
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: d.volumes()[0]}}
		d.update(pv, func() { pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain })
		require.NoError(t, d.client.Get(t.Context(), client.ObjectKeyFromObject(d.target), d.target))
		d.target.Finalizers = nil
		require.NoError(t, d.client.Update(t.Context(), d.target))
		require.NoError(t, d.client.Delete(t.Context(), d.target))
		pv.Status.Phase = corev1.VolumeReleased
		require.NoError(t, d.client.Status().Update(t.Context(), pv))
		d.restart()
		d.settle()
		require.NoError(t, d.client.Get(t.Context(), client.ObjectKeyFromObject(pv), pv), d.phase())
		require.Equal(t, corev1.PersistentVolumeReclaimRetain, pv.Spec.PersistentVolumeReclaimPolicy, d.phase())
	}
}

// A mover that was killed is replaced: the volume is its own.
func TestADownloadGoesOnWithAnotherMover(t *testing.T) {
	d := newDownloadBed(t, storagev1.VolumeBindingImmediate)
	d.settle()
	d.run("r-1")
	d.settle()
	d.terminate("r-1", corev1.PodFailed, corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"})
	d.clock.Step(time.Minute)
	d.settle()
	require.Equal(t, "InProgress", d.phase(), d.download.Status.Message)
	d.run("r-1")
	d.settle()
	d.end("r-1", outcome.Result{Phase: outcome.Completed})
	d.settle()
	d.requireFilled()
}

// Once the request names the volume, the claim gets it: a cancel comes too late.
func TestACancelThatComesWhileTheClaimIsBound(t *testing.T) {
	d := newDownloadBed(t, storagev1.VolumeBindingImmediate)
	d.settle()
	d.run("r-1")
	d.settle()
	d.end("r-1", outcome.Result{Phase: outcome.Completed})
	d.step(d.download)
	require.NotEmpty(t, d.download.Spec.TargetVolume.PV)
	require.NotEqual(t, "Completed", d.phase())
	d.update(d.download, func() { d.download.Spec.Cancel = true })
	d.settle()
	d.requireFilled()
}

// A claim that goes away meanwhile takes the data with it: no volume is left that nobody knows of.
func TestAClaimThatIsDeletedWhileItIsBound(t *testing.T) {
	d := newDownloadBed(t, storagev1.VolumeBindingImmediate)
	d.settle()
	d.run("r-1")
	d.settle()
	d.end("r-1", outcome.Result{Phase: outcome.Completed})
	d.step(d.download) // the mover Pod goes
	d.drive()
	_, err := d.controller.Reconcile(t.Context(), d.download, client.ObjectKeyFromObject(d.download))
	require.NoError(t, err)
	d.drive()
	require.Nil(t, d.mover("r-1"))
	require.NoError(t, d.client.Delete(t.Context(), d.target))
	d.settle()
	require.Equal(t, "Failed", d.phase())
	require.Equal(t, "claim shop/db is gone", d.download.Status.Message)
	d.requireNothingLeft()
	require.Empty(t, d.volumes())
}

// The cluster's volume controller, which looks at claims from time to time, binds the volume as soon as it is for the claim: also between
// two reads of the claim.
func TestTheVolumeControllerIsFirstToBindAClaim(t *testing.T) {
	d := newDownloadBed(t, storagev1.VolumeBindingImmediate)
	inner, ok := d.client.(client.WithWatch)
	require.True(t, ok)
	bound := false
	d.configure(func(c *control.Config) {
		c.Reader = interceptor.NewClient(inner, interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
				err := w.Get(ctx, key, into, opts...)
				pv := &corev1.PersistentVolume{}
				if claim, ok := into.(*corev1.PersistentVolumeClaim); ok && claim.UID == d.target.UID && claim.Spec.VolumeName == "" &&
					w.Get(ctx, client.ObjectKey{Name: d.download.Spec.TargetVolume.PV}, pv) == nil && pv.Spec.ClaimRef.Name == claim.Name {
					first := claim.DeepCopy()
					first.Spec.VolumeName, bound = pv.Name, true
					require.NoError(t, w.Update(ctx, first))
				}
				return err
			},
		})
	})
	d.settle()
	d.run("r-1")
	d.settle()
	d.end("r-1", outcome.Result{Phase: outcome.Completed})
	d.settle()
	require.True(t, bound)
	d.requireFilled()
}

// A controller that is killed at any write leaves nothing behind: its successor fills the claim.
func TestASuccessorGoesOnWithAClaim(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint("after the write: ", after), func(t *testing.T) {
			for n := 1; ; n++ {
				d := newDownloadBed(t, storagev1.VolumeBindingImmediate)
				k := &killer{Client: d.client, left: n, after: after}
				d.configure(func(c *control.Config) { c.Client = k })
				for range 30 {
					if _, err := d.controller.Reconcile(t.Context(), d.download, client.ObjectKeyFromObject(d.download)); err != nil {
						require.ErrorIs(t, err, errKilled, "write %d", n)
						d.restart()
					}
					d.drive()
					require.NoError(t, d.client.Get(t.Context(), client.ObjectKeyFromObject(d.download), d.download))
					switch pod := d.mover("r-1"); {
					case pod != nil && pod.Status.Phase == "":
						d.run("r-1")
					case pod != nil && pod.Status.Phase == corev1.PodRunning && d.phase() == "InProgress":
						d.end("r-1", outcome.Result{Phase: outcome.Completed})
					}
				}
				d.requireFilled()
				if k.left > 0 {
					require.Greater(t, n, 10)
					return
				}
			}
		})
	}
}
