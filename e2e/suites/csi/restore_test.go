package csi

import (
	"slices"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// destroy deletes a namespace with everything in it, and waits until its volumes are gone too.
func (b *bed) destroy(t *testing.T, namespace string) {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, b.Client.List(t.Context(), &pods, client.InNamespace(namespace)))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	require.NoError(t, b.Client.Delete(t.Context(), ns))
	for i := range pods.Items { // the node ends no Pods
		require.NoError(t, client.IgnoreNotFound(b.Client.Delete(t.Context(), &pods.Items[i], client.GracePeriodSeconds(0))))
	}
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(b.Client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	}, site.Patience, site.Look, "namespace %s is gone", namespace)
	require.Eventually(t, func() bool {
		var pvs corev1.PersistentVolumeList
		require.NoError(t, b.Client.List(t.Context(), &pvs))
		return !slices.ContainsFunc(pvs.Items, func(pv corev1.PersistentVolume) bool {
			return pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Namespace == namespace
		})
	}, site.Patience, site.Look, "the volumes of namespace %s are gone", namespace)
}

// lost restores a claim whose snapshot was removed from the driver.
func (b *bed) lost(t *testing.T) {
	const name, to = "lost", "lost-copy"
	volumes := b.pod(t, name, 1, nil)
	b.Backup(t, name, b.bucket, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, b.BackupEnds(t, name).Status.Phase, b.file(t, name, "-results.gz"))
	b.clean(t, volumes, 1)
	handle := b.snapshots(volumes)[0].ID
	_, err := b.driver.DeleteSnapshot(t.Context(), &csispec.DeleteSnapshotRequest{SnapshotId: handle})
	require.NoError(t, err)
	b.Restore(t, name, name, name, to)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, b.RestoreEnds(t, name).Status.Phase)
	require.Regexp(t, "claim "+to+"/data-0 is not bound to a volume of CSI snapshot "+handle+" after 20s: driver "+driver+": .*can not find snapshot for snapshotID "+handle,
		string(b.bucket.ReadZipped(t, "restores/"+name+"/restore-"+name+"-results.gz")))
	b.destroy(t, to)
	b.clean(t, volumes, 0)
	b.delete(t, name)
}
