package csistorage

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/moverpods"
)

// RequireNothingLeft waits until the cluster has no snapshot, no mover in the server's namespace, and nothing that was
// made for one, and the driver no snapshot.
func (s *Storage) RequireNothingLeft(t *testing.T, server string) {
	t.Helper()
	var left []string
	if !assert.Eventually(t, func() bool { left = s.listLeft(t, server); return len(left) == 0 }, patience, look, "nothing is left on the way") {
		require.Empty(t, left)
	}
}

func (s *Storage) listLeft(t *testing.T, server string) (left []string) {
	t.Helper()
	for _, list := range []client.ObjectList{&snapshotv1.VolumeSnapshotList{}, &snapshotv1.VolumeSnapshotContentList{}} {
		left = append(left, s.listNames(t, list)...)
	}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}} {
		left = append(left, s.listNames(t, list, client.InNamespace(server), client.HasLabels{moverpods.Label})...)
	}
	for _, label := range moverpods.AgentLabels {
		left = append(left, s.listNames(t, &corev1.PodList{}, client.InNamespace(server), client.HasLabels{label})...)
	}
	claims, volumes := &corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolumeList{}
	require.NoError(t, s.client.List(t.Context(), claims, client.InNamespace(server)))
	for _, c := range claims.Items {
		if class := ptr.Deref(c.Spec.StorageClassName, ""); class == Class || class == Late {
			left = append(left, "PersistentVolumeClaim "+c.Name)
		}
	}
	require.NoError(t, s.client.List(t.Context(), volumes))
	for _, v := range volumes.Items {
		if v.Spec.CSI != nil && (v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Namespace == server || v.Status.Phase != corev1.VolumeBound) {
			left = append(left, "PersistentVolume "+v.Name)
		}
	}
	snapshots, err := os.ReadDir(filepath.Join(s.dir, "snapshots"))
	require.NoError(t, err)
	for _, entry := range snapshots {
		left = append(left, "snapshot of the driver "+entry.Name())
	}
	return left
}

func (s *Storage) listNames(t *testing.T, list client.ObjectList, options ...client.ListOption) (names []string) {
	t.Helper()
	require.NoError(t, s.client.List(t.Context(), list, options...))
	items, err := meta.ExtractList(list)
	require.NoError(t, err)
	for _, item := range items {
		names = append(names, fmt.Sprintf("%T %s", item, client.ObjectKeyFromObject(item.(client.Object))))
	}
	return names
}
