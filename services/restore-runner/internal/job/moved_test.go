package job_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

const (
	movedClaimPath  = "/api/v1/namespaces/a/persistentvolumeclaims/data"
	movedVolumePath = "/api/v1/persistentvolumes/pvc-new"
)

// newMovedScene is the restore of a claim whose snapshot was moved.
func newMovedScene(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.config.RecordBatch = 1
	b.cluster.Serve("velero.io/v2alpha1", "datadownloads", "DataDownload", true)
	b.cluster.Serve("velero.io/v2alpha1", "datauploads", "DataUpload", true)
	b.cluster.Serve("storage.k8s.io/v1", "storageclasses", "StorageClass", false)
	b.cluster.Put("/apis/storage.k8s.io/v1/storageclasses/fast", object{"metadata": object{"name": "fast"}, "provisioner": "p"})
	b.cluster.Put("/api/v1/namespaces/velero", object{"metadata": object{"name": "velero"}})
	b.storeBackup(t, []entry{
		{"persistentvolumes", "v1", "PersistentVolume", "", "pv", object{"spec": object{"claimRef": object{"namespace": "a", "name": "data"}}}, nil},
		{"persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "data", object{
			"metadata": object{"annotations": object{"velero.io/data-upload-name": "velero/b-1"}}, "spec": object{"volumeName": "pv", "storageClassName": "fast"}}, nil},
		{"datauploads.velero.io", "velero.io/v2alpha1", "DataUpload", "velero", "b-1", object{
			"spec": object{"sourceNamespace": "a", "sourcePVC": "data", "operationTimeout": "10m0s"}, "status": object{"phase": "Completed", "snapshotID": "k"}}, nil},
	})
	b.putObject(t, layout.BackupVolumeInfo("b"), `[{"pvcName":"data","pvcNamespace":"a","pvName":"pv","backupMethod":"CSISnapshot","snapshotDataMoved":true,
		"result":"succeeded","pvInfo":{"reclaimPolicy":"Retain","labels":{"tier":"gold"}}}]`)
	b.createRestore(t, true)
	b.runner = newRunner(b.config)
	return b
}

// bindMoved binds the claim of the restore to its new volume, as volume-mover does.
func (b *bench) bindMoved() {
	claim := b.cluster.Object(movedClaimPath)
	claim["spec"].(object)["volumeName"], claim["status"] = "pvc-new", object{"phase": "Bound"}
	b.cluster.Put(movedClaimPath, claim)
	b.cluster.Put(movedVolumePath, object{"metadata": object{"name": "pvc-new", "labels": object{"velero.io/dynamic-pv-restore": "x"}},
		"spec": object{"persistentVolumeReclaimPolicy": "Delete"}})
}

func TestARestoreWaitsForMovedData(t *testing.T) {
	for name, failure := range map[string]string{"completes": "", "fails": "claim a/data: the bucket is away"} {
		t.Run(name, func(t *testing.T) {
			b := newMovedScene(t)
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			require.Equal(t, velerov1.RestorePhaseWaitingForPluginOperations, b.getRestore(t).Status.Phase, b.getRestore(t).Status.FailureReason)
			if failure == "" {
				b.bindMoved()
			}
			require.True(t, b.moveOn(t, failure))
			b.config.Claims = &jobtest.Holder{Name: "next"}
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			if failure != "" {
				require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase)
				require.Equal(t, 1, r.Status.Errors)
				require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "of action velero.io/csi-pvc-restorer failed: "+failure)
				return
			}
			require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
			pv := b.cluster.Object(movedVolumePath)
			require.Equal(t, "Retain", pv["spec"].(object)["persistentVolumeReclaimPolicy"], "that of the volume in the backup")
			require.Equal(t, object{"tier": "gold", "velero.io/dynamic-pv-restore": "x"}, kubetest.Meta(pv)["labels"])
			require.Contains(t, b.readGzip(t, layout.RestoreVolumeInfo("r")), `"pvName":"pvc-new"`)
		})
	}
}

// A runner that dies at any write, between the claim and its request too, has a successor that makes the
// request, and no second one.
func TestASuccessorMakesTheDownloadThatIsMissing(t *testing.T) {
	t.Parallel()
	count := func(b *bench) (n int) {
		for path := range b.cluster.Content() {
			if strings.Contains(path, "/datadownloads/") {
				n++
			}
		}
		return n
	}
	undisturbed := newMovedScene(t)
	undisturbed.runLife(t, 0, false)
	require.True(t, undisturbed.moveOn(t, ""))
	undisturbed.runLife(t, 0, false)
	want := undisturbed.readOutcome(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, want.Phase)
	requireSuccess := func(t *testing.T, b *bench, first *life) {
		b.finishRestore(t, "")
		require.Equal(t, want, b.readOutcome(t), "death at write %d: %s", first.at, first.what)
		require.Equal(t, 1, count(b))
	}
	for after, write := range map[bool]string{false: "/datadownloads", true: "POST " + strings.TrimSuffix(movedClaimPath, "/data")} {
		t.Run(fmt.Sprint("after the write: ", after), func(t *testing.T) {
			t.Parallel()
			died := true
			for k := 1; died; k++ {
				b := newMovedScene(t)
				first := b.runLife(t, k, after)
				died = first.isGone()
				requireSuccess(t, b, first)
			}
			b := newMovedScene(t)
			first := b.runMortal(t, &life{path: write, after: after})
			require.NotNil(t, b.cluster.Object(movedClaimPath), "the process died after it made the claim")
			require.Zero(t, count(b), "and before its request")
			requireSuccess(t, b, first)
		})
	}
}
