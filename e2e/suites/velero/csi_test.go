//go:build velero

package velero_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/csistorage"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	shop    = "shop"
	feature = "--features=EnableCSI"
)

// claims of the namespace, with what is in their volumes.
var claims = map[string]map[string]string{
	"orders": {"table": "1,2,3\n", "index/a/b": "deep\n"},
	"photos": {"one.raw": string(make([]byte, 1<<20)), "empty": ""},
}

// createCSIClaims makes a namespace with claims that have files, and returns the hashes of these by claim.
func (b *bed) createCSIClaims(t *testing.T) (storage *csistorage.Storage, before map[string]map[string]string) {
	t.Helper()
	storage = csistorage.Start(t, b.cluster, b.client)
	require.NoError(t, b.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}))
	for name, files := range claims {
		require.NoError(t, b.client.Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}, Spec: csistorage.Spec(),
		}))
		require.NoError(t, storage.Driver.Write(storage.Volume(t, shop, name), func(dir string) error {
			for file, content := range files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					return err
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	before = fileHashes(t, storage, shop)
	for name, files := range claims {
		require.Len(t, before[name], len(files), name)
	}
	return storage, before
}

// fileHashes returns those of the files in the volumes of the claims, by claim.
func fileHashes(t *testing.T, storage *csistorage.Storage, namespace string) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for name := range claims {
		all[name] = map[string]string{}
		require.NoError(t, storage.Driver.Write(storage.Volume(t, namespace, name), func(dir string) error {
			return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				content, err := os.ReadFile(path)
				sum := sha256.Sum256(content)
				all[name][path[len(dir):]] = hex.EncodeToString(sum[:])
				return err
			})
		}))
	}
	return all
}

// destroyNamespace destroys the namespace with its volumes and the objects of the server: what is left is in the
// bucket, and the snapshots in the driver.
func (b *bed) destroyNamespace(t *testing.T, storage *csistorage.Storage) {
	t.Helper()
	require.Len(t, storage.Driver.Snapshots(), len(claims))
	require.NoError(t, b.client.DeleteAllOf(t.Context(), &velerov1.Backup{}, client.InNamespace(namespace)))
	storage.Destroy(t, shop)
	var snapshots snapshotv1.VolumeSnapshotList
	var contents snapshotv1.VolumeSnapshotContentList
	require.NoError(t, b.client.List(t.Context(), &snapshots))
	require.NoError(t, b.client.List(t.Context(), &contents))
	require.Empty(t, snapshots.Items)
	require.Empty(t, contents.Items)
}

// awaitRemoved waits until a backup that is being deleted is gone with what the driver stored.
func (b *bed) awaitRemoved(t *testing.T, storage *csistorage.Storage, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &velerov1.Backup{})
		return apierrors.IsNotFound(err) && len(storage.Driver.Snapshots()) == 0
	}, patience, look, "backup %s is deleted, with the snapshots", name)
}

// Velero's server restores the volumes of claims on a CSI driver from what Holdfast left of them, and
// deletes that backup with the snapshots in the driver.
func TestVeleroRestoresCSISnapshotsOfHoldfast(t *testing.T) {
	b := newBed(t)
	storage, before := b.createCSIClaims(t)
	holdfast := b.startHoldfast(t, feature)
	_, err := b.cli.Run(t.Context(), "backup", "create", "ours", "--include-namespaces", shop, "--storage-location", location, "--wait")
	require.NoError(t, err)
	holdfast.Shutdown()
	b.destroyNamespace(t, storage)

	stop := b.startVelero(t, feature)
	defer stop()
	b.awaitSynced(t, "ours")
	for to, name := range map[string]string{shop: "same", "shop-copy": "mapped"} {
		b.runVelero(t, "restore", "create", name, "--from-backup", "ours", "--namespace-mappings", shop+":"+to, "--wait")
		var restore velerov1.Restore
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &restore))
		require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, b.runVelero(t, "restore", "describe", name, "--details"))
		require.Zero(t, restore.Status.Errors)
		require.Equal(t, before, fileHashes(t, storage, to))
	}

	b.runVelero(t, "backup", "delete", "ours", "--confirm")
	b.awaitRemoved(t, storage, "ours")
}

// Holdfast restores the volumes of claims on a CSI driver from what Velero's server left of them, and
// deletes that backup with the snapshots in the driver.
func TestHoldfastRestoresCSISnapshotsOfVelero(t *testing.T) {
	b := newBed(t)
	storage, before := b.createCSIClaims(t)
	stop := b.startVelero(t, feature, "--item-operation-sync-frequency=1s")
	b.runVelero(t, "backup", "create", "theirs", "--include-namespaces", shop, "--storage-location", location, "--wait")
	var backup velerov1.Backup
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "theirs"}, &backup))
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, b.runVelero(t, "backup", "describe", "theirs", "--details"))
	stop()
	b.destroyNamespace(t, storage)

	b.startHoldfast(t, feature)
	b.awaitSynced(t, "theirs")
	for to, name := range map[string]string{shop: "same", "shop-copy": "mapped"} {
		_, err := b.cli.Run(t.Context(), "restore", "create", name, "--from-backup", "theirs", "--namespace-mappings", shop+":"+to, "--wait")
		require.NoError(t, err)
		require.Equal(t, before, fileHashes(t, storage, to))
	}

	_, err := b.cli.Run(t.Context(), "backup", "delete", "theirs", "--confirm")
	require.NoError(t, err)
	b.awaitRemoved(t, storage, "theirs")
}
