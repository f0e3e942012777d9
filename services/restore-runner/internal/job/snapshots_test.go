package job_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// array is a plugin whose volumes and snapshots are the files of a directory.
type array struct{ dir string }

func (a *array) Init(_ context.Context, config map[string]string) error {
	a.dir = config["dir"]
	return nil
}

func (a *array) CreateVolumeFromSnapshot(_ context.Context, snapshot, kind, zone string, iops int64) (string, error) {
	text, err := os.ReadFile(filepath.Join(a.dir, snapshot))
	if err != nil {
		return "", err
	}
	if kind != "fast" || zone != "z1" || iops != 300 {
		return "", errors.New("another volume")
	}
	return "new-disk", os.WriteFile(filepath.Join(a.dir, "new-disk"), text, 0o600)
}

func (a *array) SetVolumeID(_ context.Context, pv *unstructured.Unstructured, id string) (*unstructured.Unstructured, error) {
	return pv, unstructured.SetNestedField(pv.Object, id, "spec", "hostPath", "path")
}

var errUnused = errors.New("not asked in a restore")

func (a *array) GetVolumeID(context.Context, *unstructured.Unstructured) (string, error) {
	return "", errUnused
}

func (a *array) GetVolumeInfo(context.Context, string, string) (string, int64, error) {
	return "", 0, errUnused
}

func (a *array) CreateSnapshot(context.Context, string, string, map[string]string) (string, error) {
	return "", errUnused
}

func (a *array) DeleteSnapshot(context.Context, string) error { return errUnused }

func (b *bench) putObject(t *testing.T, key, text string) {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := zip.Write([]byte(text))
	require.NoError(t, errors.Join(err, zip.Close()))
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, key, out.Bytes()))
}

// storeSnapshotBackup stores a backup of a volume and its claim, with a snapshot behind a plugin process,
// as Velero writes it.
func (b *bench) storeSnapshotBackup(t *testing.T) (disks string) {
	t.Helper()
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for path, body := range map[string]string{
		"metadata/version": "1.1.0\n",
		"resources/persistentvolumes/cluster/pv.json": `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"pv","uid":"old"},` +
			`"spec":{"persistentVolumeReclaimPolicy":"Delete","hostPath":{"path":"disk"},"claimRef":{"namespace":"a","name":"c","uid":"old-c"}}}`,
		"resources/persistentvolumeclaims/namespaces/a/c.json": `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c","namespace":"a"},"spec":{"volumeName":"pv"}}`,
	} {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: path, Size: int64(len(body)), Mode: 0o755, Typeflag: tar.TypeReg}))
		_, err := archive.Write([]byte(body))
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	b.putObject(t, layout.BackupTarball("b"), out.String())
	b.putObject(t, layout.BackupVolumeInfo("b"), `[{"pvcName":"c","pvcNamespace":"a","pvName":"pv","backupMethod":"NativeSnapshot","result":"succeeded"}]`)
	b.putObject(t, layout.BackupVolumeSnapshots("b"), `[{"spec":{"backupName":"b","backupUID":"u","location":"disks","persistentVolumeName":"pv","providerVolumeID":"disk","volumeType":"fast","volumeAZ":"z1","volumeIOPS":300},"status":{"providerSnapshotID":"snap","phase":"Completed"}}]`)

	disks, plugins := t.TempDir(), selfplugin.Directory(t, "array")
	require.NoError(t, os.WriteFile(filepath.Join(disks, "snap"), []byte("data"), 0o600))
	host, err := pluginhost.New(t.Context(), pluginhost.Config{Dir: plugins, Namespace: "velero", Environ: os.Environ(), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}})
	require.NoError(t, err)
	require.Empty(t, host.Failures())
	require.NoError(t, b.client.Create(t.Context(), &velerov1.VolumeSnapshotLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "disks"},
		Spec: velerov1.VolumeSnapshotLocationSpec{Provider: "array.io/disks", Config: map[string]string{"dir": disks}}}))
	b.config.Snapshotters = func(ctx context.Context, note func(joblog.Entry)) (restore.Snapshotters, func()) {
		session := host.Open(ctx, pluginhost.JobLog(0, note))
		return &nativesnapshot.Opener{Reader: b.client, Namespace: "velero", Session: session, WorkDir: t.TempDir()}, session.Close
	}
	b.runner = newRunner(b.config)
	return disks
}

// TestAVolumeComesBackThroughAPlugin goes through a real process, from files as Velero writes them.
func TestAVolumeComesBackThroughAPlugin(t *testing.T) {
	b := newBench(t)
	disks := b.storeSnapshotBackup(t)
	b.createRestore(t, true)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, b.readGzip(t, layout.RestoreLog("r")))
	text, err := os.ReadFile(filepath.Join(disks, "new-disk"))
	require.NoError(t, err)
	require.Equal(t, "data", string(text))
	pv, err := json.Marshal(b.cluster.Object("/api/v1/persistentvolumes/pv")["spec"])
	require.NoError(t, err)
	require.JSONEq(t, `{"persistentVolumeReclaimPolicy":"Delete","hostPath":{"path":"new-disk"},"claimRef":{"namespace":"a","name":"c"}}`, string(pv))
	require.Equal(t, object{"volumeName": "pv"}, b.cluster.Object("/api/v1/namespaces/a/persistentvolumeclaims/c")["spec"])
	require.JSONEq(t, `[{"pvcName":"c","pvcNamespace":"a","pvName":"pv","restoreMethod":"NativeSnapshot","snapshotDataMoved":false,
		"nativeSnapshotInfo":{"snapshotHandle":"snap","volumeType":"fast","volumeAZ":"z1","iops":"300","Phase":"Completed"}}]`, b.readGzip(t, layout.RestoreVolumeInfo("r")))
}

// The volume information of a restore has what was restored, under the name it has in the cluster,
// whichever holder writes it.
func TestTheVolumeInformationNamesTheVolumeThatWasMade(t *testing.T) {
	b := newBench(t)
	b.storeSnapshotBackup(t)
	b.cluster.Put("/api/v1/persistentvolumes/pv", object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": object{"name": "pv"}})
	b.createRestore(t, true, func(r *velerov1.Restore) { r.Spec.NamespaceMapping = map[string]string{"a": "b"} })
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase, b.readGzip(t, layout.RestoreLog("r")))
	var infos []struct{ PVCNamespace, PVName string }
	require.NoError(t, json.Unmarshal([]byte(b.readGzip(t, layout.RestoreVolumeInfo("r"))), &infos))
	require.Len(t, infos, 1)
	require.Equal(t, "b", infos[0].PVCNamespace)
	claim := b.cluster.Object("/api/v1/namespaces/b/persistentvolumeclaims/c")["spec"].(object)
	require.Equal(t, claim["volumeName"], infos[0].PVName)
	require.Regexp(t, "^velero-clone-", infos[0].PVName)
}

// A volume that no object points to can be found by the restore's log.
func TestTheLogKeepsTheVolumeOfAnObjectThatIsRefused(t *testing.T) {
	b := newBench(t)
	b.storeSnapshotBackup(t)
	b.cluster.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPost && r.URL.Path == "/api/v1/persistentvolumes" {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	b.createRestore(t, true)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, b.getRestore(t).Status.Phase)
	require.Contains(t, b.readGzip(t, layout.RestoreLog("r")), `volume \"new-disk\" made of snapshot \"snap\"`)
	require.Equal(t, "[]\n", b.readGzip(t, layout.RestoreVolumeInfo("r")))
}

func TestVolumesThatAreNotWantedAskNoPlugin(t *testing.T) {
	b := newBench(t)
	disks := b.storeSnapshotBackup(t)
	b.putObject(t, layout.BackupVolumeSnapshots("b"), "damaged, and not read")
	b.createRestore(t, true, func(r *velerov1.Restore) { r.Spec.RestorePVs = ptr.To(false) })
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase, b.readGzip(t, layout.RestoreLog("r")))
	require.NoFileExists(t, filepath.Join(disks, "new-disk"))
}

func TestADamagedListOfSnapshotsEndsTheRestore(t *testing.T) {
	b := newBench(t)
	b.storeSnapshotBackup(t)
	b.putObject(t, layout.BackupVolumeSnapshots("b"), "[")
	b.createRestore(t, true)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseFailed, b.getRestore(t).Status.Phase)
	require.Contains(t, b.getRestore(t).Status.FailureReason, "volume snapshots of the backup: ")
}
