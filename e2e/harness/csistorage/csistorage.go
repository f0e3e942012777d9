// Package csistorage gives the cluster of a test CSI volumes and snapshots: the directory-backed
// driver, the published controllers, and classes.
package csistorage

import (
	"slices"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/csicontrollers"
	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

const (
	// Driver is the name of the driver.
	Driver = directorydriver.Name
	// Class names the class of storage, and that of snapshots, whose policy is Delete.
	Class = "csi"
	// Late names a class of storage whose volumes are made for their first consumers.
	Late = "late"
)

// Storage is what a cluster has got.
type Storage struct {
	Driver      *directorydriver.Driver // nil for that of a node
	Controllers *csicontrollers.Controllers
	client      client.Client
	dir         string // of the driver
}

// logLines is how much of each controller's log a test that failed shows.
const logLines = 15

// Start gives a cluster the definitions, the driver, its controllers and the classes; they end with
// the test.
func Start(t *testing.T, cluster *testbed.Cluster, c client.Client) *Storage {
	t.Helper()
	dir := t.TempDir()
	driver, err := directorydriver.Start(directorydriver.Config{Name: Driver, Dir: dir, Socket: directorydriver.SocketIn(dir), Clock: clock.RealClock{}})
	require.NoError(t, err)
	t.Cleanup(driver.Close)
	s := Serve(t, cluster.RestConfig(), cluster.Kubeconfig(), dir, c)
	s.Driver = driver
	return s
}

// Serve is Start for a driver that runs in a directory, as that of a node does.
func Serve(t *testing.T, config *rest.Config, kubeconfig, dir string, c client.Client) *Storage {
	t.Helper()
	require.NoError(t, csicontrollers.Define(t.Context(), config))
	s := &Storage{client: c, dir: dir}
	var err error
	s.Controllers, err = csicontrollers.Start(csicontrollers.Config{Kubeconfig: kubeconfig, Socket: directorydriver.SocketIn(dir), Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(s.Controllers.Stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Controllers.Logs(logLines))
		}
	})
	require.NoError(t, c.Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: Driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: new(false)},
	}))
	for name, mode := range map[string]storagev1.VolumeBindingMode{Class: storagev1.VolumeBindingImmediate, Late: storagev1.VolumeBindingWaitForFirstConsumer} {
		reclaim := corev1.PersistentVolumeReclaimDelete
		require.NoError(t, c.Create(t.Context(), &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: Driver, VolumeBindingMode: &mode, ReclaimPolicy: &reclaim,
		}))
	}
	require.NoError(t, c.Create(t.Context(), &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: Class}, Driver: Driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}))
	return s
}

// Spec is the spec of a claim of Class.
func Spec() corev1.PersistentVolumeClaimSpec {
	name := Class
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &name,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("1Gi")}},
	}
}

const (
	patience = testbed.Patience
	look     = 20 * time.Millisecond
)

// Volume waits until a claim is bound, and returns the driver's name of its volume.
func (s *Storage) Volume(t *testing.T, namespace, name string) string {
	t.Helper()
	c, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	require.Eventually(t, func() bool {
		return s.Controllers.Ended() != nil ||
			s.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, c) == nil && c.Status.Phase == corev1.ClaimBound
	}, patience, look, "claim %s/%s gets bound", namespace, name)
	require.NoError(t, s.Controllers.Ended())
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: c.Spec.VolumeName}, pv))
	return pv.Spec.CSI.VolumeHandle
}

// Destroy deletes a namespace with everything in it, and waits until its volumes are gone too.
func (s *Storage) Destroy(t *testing.T, namespace string) {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, s.client.List(t.Context(), &pods, client.InNamespace(namespace)))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	require.NoError(t, s.client.Delete(t.Context(), ns))
	for i := range pods.Items { // no node ends them
		require.NoError(t, client.IgnoreNotFound(s.client.Delete(t.Context(), &pods.Items[i], client.GracePeriodSeconds(0))))
	}
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	}, patience, look, "namespace %s is gone", namespace)
	require.Eventually(t, func() bool {
		var pvs corev1.PersistentVolumeList
		require.NoError(t, s.client.List(t.Context(), &pvs))
		return !slices.ContainsFunc(pvs.Items, func(pv corev1.PersistentVolume) bool {
			return pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Namespace == namespace
		})
	}, patience, look, "the volumes of namespace %s are gone", namespace)
}
