package csirestore

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func (b *bed) class(t *testing.T, name string, mode storagev1.VolumeBindingMode) {
	t.Helper()
	require.NoError(t, b.Client.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: &mode,
	}))
}

// get reads a claim.
func (b *bed) get(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, c))
	return c
}

// data is the file of the volume that a claim is bound to, once it is.
func (b *bed) data(t *testing.T, namespace, name string) string {
	t.Helper()
	c := b.get(t, namespace, name)
	require.Equal(t, corev1.ClaimBound, c.Status.Phase, "%s/%s", namespace, name)
	pv := &corev1.PersistentVolume{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Name: c.Spec.VolumeName}, pv))
	return b.driver.File(pv.Spec.CSI.VolumeHandle)
}

// destroy deletes a namespace with everything in it, and the volumes of its claims.
func (b *bed) destroy(t *testing.T, namespace string) {
	t.Helper()
	var pvs corev1.PersistentVolumeList
	require.NoError(t, b.Client.List(t.Context(), &pvs))
	var pods corev1.PodList
	require.NoError(t, b.Client.List(t.Context(), &pods, client.InNamespace(namespace)))
	for i := range pods.Items { // there is no kubelet
		require.NoError(t, client.IgnoreNotFound(b.Client.Delete(t.Context(), &pods.Items[i], client.GracePeriodSeconds(0))))
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	require.NoError(t, b.Client.Delete(t.Context(), ns))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(b.Client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	}, site.Patience, site.Look, "namespace %s is gone", namespace)
	for i := range pvs.Items {
		if ref := pvs.Items[i].Spec.ClaimRef; ref != nil && ref.Namespace == namespace {
			require.NoError(t, client.IgnoreNotFound(b.Client.Delete(t.Context(), &pvs.Items[i])))
		}
	}
}

// ends waits for the end of a restore, and returns it with the text of its results.
func (b *bed) ends(t *testing.T, name string) (*velerov1.Restore, string) {
	t.Helper()
	r := b.RestoreEnds(t, name)
	return r, string(b.bucket.ReadZipped(t, "restores/"+name+"/restore-"+name+"-results.gz"))
}

// restored restores a namespace whose volumes were destroyed, to itself and to another one.
func (b *bed) restored(t *testing.T) {
	const name, claims = "files", 2
	b.application(t, name, claims)
	b.claim(t, name, "unused", "late")
	file := func(i int) string { return fmt.Sprintf("file %d at the cut", i) }
	for i := range claims {
		b.driver.Write(fmt.Sprintf("pv-%s-data-%d", name, i), file(i))
	}
	b.Backup(t, name, b.bucket, name)
	backup := b.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, b.file(t, name, "-results.gz"))
	for i := range claims {
		b.driver.Write(fmt.Sprintf("pv-%s-data-%d", name, i), "written after the cut")
	}
	b.clean(t, claims+1)
	b.destroy(t, name)
	for to, restore := range map[string]string{name: "same", "elsewhere": "mapped"} {
		b.Restore(t, restore, name, name, to)
		r, results := b.ends(t, restore)
		require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, results)
		for i := range claims {
			require.Equal(t, file(i), b.data(t, to, fmt.Sprintf("data-%d", i)))
		}
		require.Equal(t, corev1.ClaimPending, b.get(t, to, "unused").Status.Phase, "it waits for its first consumer, and the restore does not")
		require.Contains(t, string(b.bucket.ReadZipped(t, "restores/"+restore+"/"+restore+"-volumeinfo.json.gz")), `"restoreMethod":"CSISnapshot"`)
	}
	require.Eventually(t, func() bool { return b.objects(t) == 4 }, site.Patience, site.Look, "the pairs of bound claims go, those of waiting ones stay")
	waiting := b.get(t, "elsewhere", "unused")
	changed := waiting.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "volume.kubernetes.io/selected-node", "n")
	require.NoError(t, b.Client.Patch(t.Context(), changed, client.MergeFrom(waiting)))
	require.Eventually(t, func() bool { return b.get(t, "elsewhere", "unused").Status.Phase == corev1.ClaimBound }, site.Patience, site.Look, "its consumer has it bound")
	b.destroy(t, name)
	b.clean(t, claims+1)
	b.delete(t, name)
	b.clean(t, 0)
	require.Equal(t, file(0), b.data(t, "elsewhere", "data-0"), "restored data outlives the backup")
}

// restorerDies kills the runner while claims wait for their volumes.
func (b *bed) restorerDies(t *testing.T) {
	const name, claims = "restorer", 3
	b.application(t, name, claims)
	for i := range claims {
		b.driver.Write(fmt.Sprintf("pv-%s-data-%d", name, i), "data")
	}
	b.Backup(t, name, b.bucket, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, b.BackupEnds(t, name).Status.Phase)
	b.clean(t, claims)
	before := b.driver.Made()
	b.Restore(t, name, name, name, "restorer-copy")
	require.Eventually(t, func() bool { return b.objects(t) > 0 }, site.Patience, site.Look, "a pair is made")
	b.Fleet.Of("restore-runner")[0].Kill()
	_, err := b.Fleet.Revive(t.Context())
	require.NoError(t, err)
	r, results := b.ends(t, name)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, results)
	require.Equal(t, claims, b.driver.Made()-before)
	for i := range claims {
		require.Equal(t, "data", b.data(t, "restorer-copy", fmt.Sprintf("data-%d", i)))
	}
	b.clean(t, claims)
	b.delete(t, name)
	b.clean(t, 0)
}

// velero restores, and deletes, a backup that Velero 1.18 has left in the bucket.
func (b *bed) velero(t *testing.T) {
	const name = "from-velero"
	b.driver.Keep("handle-1", "what Velero saved")
	b.store(t, name)
	backup := &velerov1.Backup{}
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, backup) == nil
	}, site.Patience, site.Look, "the backup is synced")
	b.Restore(t, name, name, "shop", "shop-copy")
	r, results := b.ends(t, name)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, results)
	require.Equal(t, "what Velero saved", b.data(t, "shop-copy", "data"))
	pv := &corev1.PersistentVolume{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Name: b.get(t, "shop-copy", "data").Spec.VolumeName}, pv))
	require.Equal(t, corev1.PersistentVolumeReclaimRetain, pv.Spec.PersistentVolumeReclaimPolicy)
	b.clean(t, 1)
	b.delete(t, name)
	b.clean(t, 0)
}

// store writes a backup of one claim as Velero 1.18 does.
func (b *bed) store(t *testing.T, name string) {
	t.Helper()
	zipped := func(content []byte) []byte {
		var out bytes.Buffer
		zip := gzip.NewWriter(&out)
		_, err := zip.Write(content)
		require.NoError(t, errors.Join(err, zip.Close()))
		return out.Bytes()
	}
	var tarball bytes.Buffer
	archive := tar.NewWriter(&tarball)
	add := func(path, body string) {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: path, Size: int64(len(body)), Mode: 0o755, Typeflag: tar.TypeReg}))
		_, err := archive.Write([]byte(body))
		require.NoError(t, err)
	}
	add("metadata/version", "1.1.0\n")
	both := func(resource, place, body string) {
		add("resources/"+resource+"/"+place, body)
		add("resources/"+resource+"/v1-preferredversion/"+place, body)
	}
	both("namespaces", "cluster/shop.json", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	both("persistentvolumes", "cluster/pv-shop.json", `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"pv-shop"},"spec":{"accessModes":["ReadWriteOnce"],
		"capacity":{"storage":"1Gi"},"persistentVolumeReclaimPolicy":"Retain","storageClassName":"fast","csi":{"driver":"`+driver+`","volumeHandle":"vol-shop"},
		"claimRef":{"kind":"PersistentVolumeClaim","namespace":"shop","name":"data","uid":"c"}}}`)
	both("persistentvolumeclaims", "namespaces/shop/data.json", `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data","namespace":"shop","uid":"c",
		"labels":{"velero.io/volume-snapshot-name":"velero-data-x7k2p","velero.io/backup-name":"`+name+`"},
		"annotations":{"velero.io/volume-snapshot-name":"velero-data-x7k2p","pv.kubernetes.io/bind-completed":"yes"}},
		"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"fast","volumeName":"pv-shop","resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound"}}`)
	both("volumesnapshots.snapshot.storage.k8s.io", "namespaces/shop/velero-data-x7k2p.json", `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot",
		"metadata":{"name":"velero-data-x7k2p","namespace":"shop","uid":"v","labels":{"velero.io/backup-name":"`+name+`"},
		"annotations":{"velero.io/csi-volumesnapshot-handle":"handle-1","velero.io/csi-driver-name":"`+driver+`","velero.io/csi-vsc-deletion-policy":"Delete"}},
		"spec":{"source":{"persistentVolumeClaimName":"data"},"volumeSnapshotClassName":"theirs"},
		"status":{"boundVolumeSnapshotContentName":"snapcontent-v","readyToUse":true,"restoreSize":"5Gi"}}`)
	both("volumesnapshotcontents.snapshot.storage.k8s.io", "cluster/snapcontent-v.json", `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotContent",
		"metadata":{"name":"snapcontent-v","uid":"w","labels":{"velero.io/backup-name":"`+name+`"}},
		"spec":{"deletionPolicy":"Delete","driver":"`+driver+`","source":{"volumeHandle":"vol-shop"},"volumeSnapshotClassName":"theirs",
		"volumeSnapshotRef":{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","namespace":"shop","name":"velero-data-x7k2p","uid":"v"}},
		"status":{"snapshotHandle":"handle-1","readyToUse":true,"restoreSize":5368709120}}`)
	both("volumesnapshotclasses.snapshot.storage.k8s.io", "cluster/theirs.json", `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotClass",
		"metadata":{"name":"theirs"},"driver":"`+driver+`","deletionPolicy":"Delete"}`)
	require.NoError(t, archive.Close())

	operation := `{"Group":"snapshot.storage.k8s.io","Resource":"volumesnapshots","Namespace":"shop","Name":"velero-data-x7k2p"}`
	files := map[string][]byte{
		name + ".tar.gz": zipped(tarball.Bytes()),
		name + "-volumeinfo.json.gz": zipped([]byte(`[{"pvcName":"data","pvcNamespace":"shop","pvName":"pv-shop","backupMethod":"CSISnapshot","snapshotDataMoved":false,
			"preserveLocalSnapshot":true,"skipped":false,"result":"succeeded","csiSnapshotInfo":{"snapshotHandle":"handle-1","size":5368709120,"driver":"` + driver + `",
			"vscName":"snapcontent-v","operationID":"shop/velero-data-x7k2p/2026-05-20T08:00:22Z","ReadyToUse":true},"pvInfo":{"reclaimPolicy":"Retain"}}]`)),
		name + "-itemoperations.json.gz": zipped([]byte(`[{"spec":{"backupName":"` + name + `","backupUID":"u","backupItemAction":"velero.io/csi-volumesnapshot-backupper",
			"resourceIdentifier":` + operation + `,"operationID":"shop/velero-data-x7k2p/2026-05-20T08:00:22Z","postOperationItems":[` + operation + `]},
			"status":{"phase":"Completed","created":"2026-05-20T08:00:22Z"}}]`)),
		name + "-volumesnapshots.json.gz": zipped([]byte("null")), name + "-podvolumebackups.json.gz": zipped([]byte("null")),
		name + "-results.gz": zipped([]byte(`{"errors":{},"warnings":{}}`)), name + "-logs.gz": zipped(nil),
		"velero-backup.json": []byte(`{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"` + name + `","namespace":"` + site.Server + `","uid":"u"},
			"spec":{"storageLocation":"` + b.bucket.Location + `","includedNamespaces":["shop"]},
			"status":{"version":1,"formatVersion":"1.1.0","phase":"Completed","startTimestamp":"2026-05-20T08:00:00Z","completionTimestamp":"2026-05-20T08:01:00Z","expiration":"2036-05-20T08:00:00Z"}}`),
	}
	root := filepath.Join(b.dir, b.bucket.Location, "backups", name)
	require.NoError(t, os.MkdirAll(root, 0o700))
	for _, late := range []bool{false, true} { // what makes it a backup comes last
		for file, content := range files {
			if late == (file == "velero-backup.json") {
				require.NoError(t, os.WriteFile(filepath.Join(root, file), content, 0o600))
			}
		}
	}
}
