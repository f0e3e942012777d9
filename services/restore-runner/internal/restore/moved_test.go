package restore_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

func newMoveServer(t *testing.T) *kubetest.Server {
	t.Helper()
	s := newPodVolumeServer(t)
	s.Serve("velero.io/v2alpha1", "datauploads", "DataUpload", true)
	s.Serve("velero.io/v2alpha1", "datadownloads", "DataDownload", true)
	return s
}

// movedClaim is a backup of a claim with a moved snapshot, as Velero 1.18 stores it, with a DataUpload of an
// earlier backup beside it.
func movedClaim(t *testing.T) *backup {
	t.Helper()
	b := &backup{}
	b.addObject("persistentvolumes", "v1", "PersistentVolume", "", "pv", object{"spec": object{"persistentVolumeReclaimPolicy": "Retain",
		"csi": object{"driver": csiDriver, "volumeHandle": "old"}, "claimRef": object{"namespace": "a", "name": "data", "uid": "old-data"}}})
	b.addObject("persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "data", object{
		"metadata": object{"labels": object{"velero.io/volume-snapshot-name": "velero-data-x7k2p"},
			"annotations": object{"velero.io/volume-snapshot-name": "velero-data-x7k2p", "velero.io/data-upload-name": "old-velero/b-7x2", "pv.kubernetes.io/bind-completed": "yes"}},
		"spec":   object{"volumeName": "pv", "storageClassName": "fast", "dataSource": object{"kind": "PersistentVolumeClaim", "name": "gone"}, "resources": object{"requests": object{"storage": "1Gi"}}},
		"status": object{"phase": "Bound", "capacity": object{"storage": "3Gi"}}})
	for name, snapshot := range map[string]string{"b-7x2": "moved", "earlier-4kq": "old"} {
		b.addObject("datauploads.velero.io", "velero.io/v2alpha1", "DataUpload", "old-velero", name, object{
			"spec":   object{"snapshotType": "CSI", "sourceNamespace": "a", "sourcePVC": "data", "backupStorageLocation": "bucket", "operationTimeout": "10m0s"},
			"status": object{"phase": "Completed", "snapshotID": snapshot, "nodeOS": "linux", "progress": object{"totalBytes": 2 << 30, "bytesDone": 2 << 30}}})
	}
	b.elsewhere = []volumedata.Data{{Method: volumedata.DataUpload, Namespace: "a", Claim: "data", Stored: true}}
	require.NoError(t, json.Unmarshal([]byte(`[{"pvcName":"data","pvcNamespace":"a","pvName":"pv","backupMethod":"CSISnapshot","snapshotDataMoved":true,
		"pvInfo":{"reclaimPolicy":"Retain","labels":{"tier":"gold"}}}]`), &b.infos))
	return b
}

func downloadsOf(s *kubetest.Server) (all []object) {
	for path := range s.Content() {
		if strings.Contains(path, "/datadownloads/") {
			all = append(all, s.Object(path))
		}
	}
	return all
}

func runMoved(t *testing.T, s *kubetest.Server, b *backup, spec velerov1.RestoreSpec, change ...func(*restore.Config)) *finishedRestore {
	t.Helper()
	able := func(c *restore.Config) { c.Location, c.SnapshotTimeout = "bucket", 7*time.Minute }
	return runRestore(t, s, b, spec, append([]func(*restore.Config){able}, change...)...)
}

func TestAClaimWaitsForItsMovedData(t *testing.T) {
	s := newMoveServer(t)
	f := runMoved(t, s, movedClaim(t), toB())
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.Nil(t, s.Object(pvPath), "its claim gets a new volume")

	claim := claimSpec(s, "b")
	require.NotContains(t, claim, "volumeName")
	require.NotContains(t, claim, "dataSource")
	require.Equal(t, "3Gi", claim["resources"].(object)["requests"].(object)["storage"], "the data fitted there")
	selector := claim["selector"].(object)["matchLabels"].(object)["velero.io/dynamic-pv-restore"]
	require.Regexp(t, `^b\.data\.[0-9a-f]{12}$`, selector)
	annotations, _ := kubetest.Meta(s.Object("/api/v1/namespaces/b/persistentvolumeclaims/data"))["annotations"].(object)
	require.NotContains(t, annotations, "velero.io/data-upload-name", "a later backup is not of this upload")

	downloads := downloadsOf(s)
	require.Len(t, downloads, 1)
	require.Equal(t, object{
		"targetVolume": object{"namespace": "b", "pvc": "data", "pv": ""}, "backupStorageLocation": "bucket", "snapshotID": "moved",
		"sourceNamespace": "a", "operationTimeout": "7m0s", "nodeOS": "linux", "snapshotSize": float64(2 << 30),
	}, downloads[0]["spec"])
	meta := kubetest.Meta(downloads[0])
	require.Equal(t, "velero", meta["namespace"])
	require.Equal(t, []any{object{"apiVersion": "velero.io/v1", "kind": "Restore", "name": "r", "uid": string(restoreUID), "controller": true}}, meta["ownerReferences"])

	begun := f.recorder.Operations()
	require.Len(t, begun, 1)
	require.Equal(t, []string{"velero.io/csi-pvc-restorer", "RestoreItemActionV2", "persistentvolumeclaims b/data"}, []string{begun[0].Action, begun[0].Kind, begun[0].Item.String()})
	require.Equal(t, meta["labels"].(object)["velero.io/async-operation-id"], begun[0].ID)
	require.True(t, strings.HasPrefix(begun[0].ID, "dd-"))
	for path := range s.Content() {
		require.NotContains(t, path, "/datauploads/", "no request is made anew")
	}
	require.Nil(t, s.Object("/api/v1/namespaces/old-velero"), "the server of the backup may have been elsewhere")

	var infos bytes.Buffer
	require.NoError(t, f.recorder.Files().WriteVolumeInfo(&infos, nil))
	require.JSONEq(t, `[{"pvcName":"data","pvcNamespace":"b","restoreMethod":"CSISnapshot","snapshotDataMoved":true,
		"snapshotDataMovementInfo":{"dataMover":"velero","uploaderType":"kopia","snapshotHandle":"moved","operationID":"`+begun[0].ID+`","size":2147483648}}]`, infos.String())
	require.Equal(t, "Retain", f.recorder.Downloads()[0].Volume.Download.ReclaimPolicy)
	require.Equal(t, map[string]string{"tier": "gold"}, f.recorder.Downloads()[0].Volume.Download.Labels)
}

// An application on an empty volume would seem to be restored: its claim is not created.
func TestAClaimWithoutMovedDataIsAnErrorAndNotCreated(t *testing.T) {
	const claim, upload = "resources/persistentvolumeclaims/namespaces/a/data.json", "resources/datauploads.velero.io/namespaces/old-velero/b-7x2.json"
	status := func(key string, value any) func(object) {
		return func(o object) { o["status"].(object)[key] = value }
	}
	for want, c := range map[string]struct {
		path   string
		change func(object)
	}{
		"DataUpload old-velero/b-7x2: it is Completed and has no snapshot": {upload, status("snapshotID", "")},
		"it is InProgress and has no snapshot: stuck": {upload, func(o object) {
			o["status"] = object{"phase": "InProgress", "message": "stuck"}
		}},
		"DataUpload old-velero/b-7x2: it is of another claim":     {upload, func(o object) { o["spec"].(object)["sourcePVC"] = "other" }},
		`its data is with data mover "acme", which is not served`: {upload, func(o object) { o["spec"].(object)["datamover"] = "acme" }},
		"DataUpload velero/other is not in the backup": {claim, func(o object) {
			kubetest.Meta(o)["annotations"].(object)["velero.io/data-upload-name"] = "velero/other"
		}},
		"not namespace/name of a DataUpload": {claim, func(o object) { delete(kubetest.Meta(o), "annotations") }},
		`spec.storageClassName is ""`:        {claim, func(o object) { o["spec"].(object)["storageClassName"] = "" }},
	} {
		t.Run(want, func(t *testing.T) {
			s, b := newMoveServer(t), movedClaim(t)
			var o object
			require.NoError(t, json.Unmarshal(b.bodies[c.path], &o))
			c.change(o)
			raw, err := json.Marshal(o)
			require.NoError(t, err)
			b.bodies[c.path] = raw
			f := runMoved(t, s, b, toB())
			require.Contains(t, f.results.Errors.allMessages(), want)
			require.Contains(t, f.results.Errors.allMessages(), "persistentvolumeclaims b/data: ")
			require.Equal(t, 1, f.recorder.Counts().Errors)
			require.Nil(t, claimSpec(s, "b"))
			require.Empty(t, downloadsOf(s))
		})
	}
}

// What could be read comes back, as with file-system backups.
func TestAPartOfTheDataIsRestoredWithAWarning(t *testing.T) {
	const upload = "resources/datauploads.velero.io/namespaces/old-velero/b-7x2.json"
	s, b := newMoveServer(t), movedClaim(t)
	b.bodies[upload] = bytes.Replace(b.bodies[upload], []byte(`"Completed"`), []byte(`"Failed"`), 1)
	f := runMoved(t, s, b, toB())
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, "persistentvolumeclaims b/data: its DataUpload is Failed: what that could not read is not in the snapshot", f.results.Warnings.allMessages())
	require.Len(t, downloadsOf(s), 1)
}

func TestAClaimOfTheClusterGetsNoMovedData(t *testing.T) {
	s := newMoveServer(t)
	s.Put("/api/v1/namespaces/b", object{"metadata": object{"name": "b"}})
	s.Put("/api/v1/namespaces/b/persistentvolumeclaims/data", object{"metadata": object{"name": "data", "namespace": "b"}, "spec": object{"storageClassName": "fast", "volumeName": "live"}})
	f := runMoved(t, s, movedClaim(t), toB())
	require.Empty(t, f.results.Errors.allMessages())
	require.Contains(t, f.results.Warnings.allMessages(), "persistentvolumeclaims b/data: the claim is in the cluster: its moved data is not restored")
	require.Equal(t, "live", claimSpec(s, "b")["volumeName"])
	require.Empty(t, downloadsOf(s))
	require.Empty(t, f.recorder.Operations())
}

// With restorePVs false the claim gets an empty volume.
func TestMovedDataIsNotWanted(t *testing.T) {
	s, spec := newMoveServer(t), toB()
	no := false
	spec.RestorePVs = &no
	f := runMoved(t, s, movedClaim(t), spec)
	require.Empty(t, f.results.Errors.allMessages())
	require.NotContains(t, claimSpec(s, "b"), "volumeName")
	require.NotContains(t, claimSpec(s, "b"), "selector")
	require.Empty(t, downloadsOf(s))
}

func TestADownloadThatIsRefusedIsAnErrorOfItsClaim(t *testing.T) {
	s := newMoveServer(t)
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/datadownloads") {
			return http.StatusForbidden, false
		}
		return 0, false
	})
	f := runMoved(t, s, movedClaim(t), toB())
	require.Contains(t, f.results.Errors.allMessages(), "persistentvolumeclaims b/data: its data is not restored, and the claim waits for it: create DataDownload r-")
	require.Empty(t, f.recorder.Operations())
}
