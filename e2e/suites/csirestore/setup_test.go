package csirestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/csitest"
)

const driver = "disk.example.com"

// bed is a site whose cluster has a CSI driver with snapshots.
type bed struct {
	*site.Site
	driver *csitest.Driver
	bucket *site.Bucket
	dir    string // that the bucket is in
}

func TestRestoresOfCSISnapshots(t *testing.T) {
	b := newBed(t)
	t.Run("files come back as they were at the cut", b.restored)
	t.Run("a killed runner restores no claim twice", b.restorerDies)
	t.Run("a backup as Velero writes it", b.velero)
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{}
	feature := "--features=EnableCSI"
	b.Site = site.Start(t, site.Config{
		Identities: []string{"--set", "features={EnableCSI}"},
		Arrange: func(s *site.Site) map[string][]string {
			require.NoError(t, csitest.Define(t.Context(), s.Client))
			return nil
		},
		Args: map[string][]string{
			"backup-runner":           {feature, "--claim-timeout=2s"},
			"async-operation-monitor": {feature, "--item-operation-sync-frequency=1s", "--item-operation-cancel-grace-period=4s"},
			"queue-scheduler":         {"--claim-timeout=2s"},
			"deletion":                {feature, "--claim-timeout=2s"},
			"restore-runner":          {feature, "--claim-timeout=2s", "--resource-timeout=20s"},
		},
	})
	b.driver = &csitest.Driver{Client: b.Client, Name: driver, Subresource: true, Provision: true}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var runs sync.WaitGroup
	runs.Go(func() { b.driver.Run(ctx, 100*time.Millisecond, func(err error) { t.Error(err) }) })
	t.Cleanup(func() { stop(); runs.Wait() })
	require.NoError(t, b.Client.Create(t.Context(), &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}))
	b.class(t, "fast", storagev1.VolumeBindingImmediate)
	b.class(t, "late", storagev1.VolumeBindingWaitForFirstConsumer)
	bucket, dir := site.FileBucket(t, "default")
	b.bucket, b.dir = bucket, dir
	b.ReachFiles(t, dir, bucket)
	return b
}

// application makes a namespace with a Pod that has some claims.
func (b *bed) application(t *testing.T, namespace string, claims int) {
	t.Helper()
	b.Namespace(t, namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "db", Image: "example.com/db"}}, AutomountServiceAccountToken: new(bool),
	}}
	for i := range claims {
		name := fmt.Sprintf("data-%d", i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		b.claim(t, namespace, name, "fast")
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	if err := b.Client.Create(t.Context(), account); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	require.NoError(t, b.Client.Create(t.Context(), pod))
}

// claim makes a claim that is bound to a volume of the driver.
func (b *bed) claim(t *testing.T, namespace, name, class string) {
	t.Helper()
	volume := "pv-" + namespace + "-" + name
	size := corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("1Gi")}
	require.NoError(t, b.Client.Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:       class,
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: volume}},
		},
	}))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: volume, StorageClassName: &class,
		Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}
	require.NoError(t, b.Client.Create(t.Context(), claim))
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) == nil && claim.Status.Phase == corev1.ClaimBound
	}, site.Patience, site.Look, "claim %s/%s gets bound", namespace, name)
}

// objects returns how many VolumeSnapshots and VolumeSnapshotContents there are.
func (b *bed) objects(t *testing.T) int {
	t.Helper()
	var vs snapshotv1.VolumeSnapshotList
	var vsc snapshotv1.VolumeSnapshotContentList
	require.NoError(t, errors.Join(b.Client.List(t.Context(), &vs), b.Client.List(t.Context(), &vsc)))
	return len(vs.Items) + len(vsc.Items)
}

// clean waits until the cluster has no snapshot objects, and the driver this number of snapshots.
func (b *bed) clean(t *testing.T, stored int) {
	t.Helper()
	require.Eventually(t, func() bool { return b.objects(t) == 0 && len(b.driver.Stored()) == stored },
		site.Patience, site.Look, "no snapshot objects, and %d snapshots", stored)
}

// delete deletes a backup and waits until it is gone.
func (b *bed) delete(t *testing.T, name string) {
	t.Helper()
	backup := &velerov1.Backup{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, backup))
	request := &velerov1.DeleteBackupRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, GenerateName: name + "-"}, Spec: velerov1.DeleteBackupRequestSpec{BackupName: name},
	}
	require.NoError(t, b.Client.Create(t.Context(), request))
	require.Eventually(t, func() bool {
		err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(request), request)
		if err == nil && request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed {
			t.Fatalf("deletion of %s: %v", name, request.Status.Errors)
		}
		return apierrors.IsNotFound(b.Client.Get(t.Context(), client.ObjectKeyFromObject(backup), backup))
	}, site.Patience, site.Look, "backup %s is deleted", name)
}

func (b *bed) file(t *testing.T, backup, suffix string) string {
	t.Helper()
	return string(b.bucket.ReadZipped(t, "backups/"+backup+"/"+backup+suffix))
}
