package csi

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
)

// storeVeleroBackup writes a backup of one claim, data in the namespace shop, as Velero 1.18 does.
func (b *bed) storeVeleroBackup(t *testing.T, name, handle string) {
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
		"capacity":{"storage":"1Gi"},"persistentVolumeReclaimPolicy":"Retain","storageClassName":"`+class+`","csi":{"driver":"`+driver+`","volumeHandle":"vol-shop"},
		"claimRef":{"kind":"PersistentVolumeClaim","namespace":"shop","name":"data","uid":"c"}}}`)
	both("persistentvolumeclaims", "namespaces/shop/data.json", `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data","namespace":"shop","uid":"c",
		"labels":{"velero.io/volume-snapshot-name":"velero-data-x7k2p","velero.io/backup-name":"`+name+`"},
		"annotations":{"velero.io/volume-snapshot-name":"velero-data-x7k2p","pv.kubernetes.io/bind-completed":"yes"}},
		"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"`+class+`","volumeName":"pv-shop","resources":{"requests":{"storage":"5Gi"}}},"status":{"phase":"Bound"}}`)
	both("volumesnapshots.snapshot.storage.k8s.io", "namespaces/shop/velero-data-x7k2p.json", `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot",
		"metadata":{"name":"velero-data-x7k2p","namespace":"shop","uid":"v","labels":{"velero.io/backup-name":"`+name+`"},
		"annotations":{"velero.io/csi-volumesnapshot-handle":"`+handle+`","velero.io/csi-driver-name":"`+driver+`","velero.io/csi-vsc-deletion-policy":"Delete"}},
		"spec":{"source":{"persistentVolumeClaimName":"data"},"volumeSnapshotClassName":"theirs"},
		"status":{"boundVolumeSnapshotContentName":"snapcontent-v","readyToUse":true,"restoreSize":"5Gi"}}`)
	both("volumesnapshotcontents.snapshot.storage.k8s.io", "cluster/snapcontent-v.json", `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotContent",
		"metadata":{"name":"snapcontent-v","uid":"w","labels":{"velero.io/backup-name":"`+name+`"}},
		"spec":{"deletionPolicy":"Delete","driver":"`+driver+`","source":{"volumeHandle":"vol-shop"},"volumeSnapshotClassName":"theirs",
		"volumeSnapshotRef":{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","namespace":"shop","name":"velero-data-x7k2p","uid":"v"}},
		"status":{"snapshotHandle":"`+handle+`","readyToUse":true,"restoreSize":5368709120}}`)
	both("volumesnapshotclasses.snapshot.storage.k8s.io", "cluster/theirs.json", `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotClass",
		"metadata":{"name":"theirs"},"driver":"`+driver+`","deletionPolicy":"Delete"}`)
	require.NoError(t, archive.Close())

	operation := `{"Group":"snapshot.storage.k8s.io","Resource":"volumesnapshots","Namespace":"shop","Name":"velero-data-x7k2p"}`
	files := map[string][]byte{
		name + ".tar.gz": zipped(tarball.Bytes()),
		name + "-volumeinfo.json.gz": zipped([]byte(`[{"pvcName":"data","pvcNamespace":"shop","pvName":"pv-shop","backupMethod":"CSISnapshot","snapshotDataMoved":false,
			"preserveLocalSnapshot":true,"skipped":false,"result":"succeeded","csiSnapshotInfo":{"snapshotHandle":"` + handle + `","size":5368709120,"driver":"` + driver + `",
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
