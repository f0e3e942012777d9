package job_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// newFiledScene is the restore of a Pod whose claim and emptyDir are in file-system backups.
func newFiledScene(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.config.RecordBatch, b.config.WaitImage = 1, "mover:1"
	b.cluster.Serve("velero.io/v1", "podvolumerestores", "PodVolumeRestore", true)
	b.cluster.Serve("storage.k8s.io/v1", "storageclasses", "StorageClass", false)
	b.cluster.Put("/apis/storage.k8s.io/v1/storageclasses/fast", object{"metadata": object{"name": "fast"}, "provisioner": "p"})
	b.cluster.Put("/api/v1/namespaces/velero", object{"metadata": object{"name": "velero"}})
	b.storeBackup(t, []entry{
		{"persistentvolumes", "v1", "PersistentVolume", "", "pv", object{"spec": object{"claimRef": object{"namespace": "a", "name": "data"}}}, nil},
		{"persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "data", object{"spec": object{"volumeName": "pv", "storageClassName": "fast"}}, nil},
		{"pods", "v1", "Pod", "a", "db-0", object{"spec": object{"containers": []any{object{"name": "db"}}, "volumes": []any{
			object{"name": "data", "persistentVolumeClaim": object{"claimName": "data"}}, object{"name": "scratch", "emptyDir": object{}}}}}, nil},
	})
	taken := func(volume, claim string) velerov1.PodVolumeBackup {
		p := velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{Name: "b-" + volume}}
		if claim != "" {
			p.Annotations = map[string]string{velerov1.AnnotationPVCName: claim}
		}
		p.Spec.Pod.Namespace, p.Spec.Pod.Name, p.Spec.Volume, p.Spec.UploaderType = "a", "db-0", volume, "kopia"
		p.Status.Phase, p.Status.SnapshotID = velerov1.PodVolumePhaseCompleted, "snap-"+volume
		return p
	}
	list, err := json.Marshal([]velerov1.PodVolumeBackup{taken("data", "data"), taken("scratch", "")})
	require.NoError(t, err)
	b.putObject(t, layout.BackupPodVolumeBackups("b"), string(list))
	b.putObject(t, layout.BackupVolumeInfo("b"), `[{"pvcName":"data","pvcNamespace":"a","pvName":"pv","backupMethod":"PodVolumeBackup","result":"succeeded",
		"pvbInfo":{"snapshotHandle":"snap-data","volumeName":"data","podName":"db-0","podNamespace":"a"}}]`)
	b.createRestore(t, true)
	b.runner = newRunner(b.config)
	return b
}

// countRequests counts the PodVolumeRestores in the cluster.
func (b *bench) countRequests() (n int) {
	for path := range b.cluster.Content() {
		if strings.Contains(path, "/podvolumerestores/") {
			n++
		}
	}
	return n
}

// A restore ends once the data of its Pods is there; each volume that it is not is one error.
func TestARestoreWaitsForTheDataOfItsPods(t *testing.T) {
	for name, failure := range map[string]string{"completes": "", "fails": "volume x of pod a/db-0: the bucket is away"} {
		t.Run(name, func(t *testing.T) {
			b := newFiledScene(t)
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			require.Equal(t, velerov1.RestorePhaseWaitingForPluginOperations, r.Status.Phase, r.Status.FailureReason)
			require.Equal(t, 2, r.Status.RestoreItemOperationsAttempted)
			require.Equal(t, 2, b.countRequests())

			require.True(t, b.moveOn(t, failure))
			b.config.Claims = &jobtest.Holder{Name: "next"}
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			r = b.getRestore(t)
			if failure == "" {
				require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
				return
			}
			require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase)
			require.Equal(t, 2, r.Status.Errors)
			require.Equal(t, 2, strings.Count(b.readGzip(t, layout.RestoreResults("r")), "of action holdfast.io/pod-volume-restore failed: "+failure))
		})
	}
}

// The volume information has the volumes of Pods, as they are at the end of the restore.
func TestTheVolumeInformationHasTheVolumesOfPods(t *testing.T) {
	b := newFiledScene(t)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	for path := range b.cluster.Content() { // the bench has two API servers
		if !strings.Contains(path, "/podvolumerestores/") {
			continue
		}
		raw, err := json.Marshal(b.cluster.Object(path))
		require.NoError(t, err)
		request := &velerov1.PodVolumeRestore{}
		require.NoError(t, json.Unmarshal(raw, request))
		request.ResourceVersion = ""
		request.Status = velerov1.PodVolumeRestoreStatus{Phase: velerov1.PodVolumePhaseCompleted, Node: "n1", Progress: velerov1.DataMoveOperationProgress{TotalBytes: 7}}
		require.NoError(t, b.client.Create(t.Context(), request))
	}
	require.NoError(t, b.client.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-new"}}))
	require.True(t, b.moveOn(t, ""))
	b.config.Claims = &jobtest.Holder{Name: "next"}
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	var infos []any
	require.NoError(t, json.Unmarshal([]byte(b.readGzip(t, layout.RestoreVolumeInfo("r"))), &infos))
	info := func(volume string) object {
		return object{"snapshotHandle": "snap-" + volume, "size": 7.0, "uploaderType": "kopia", "volumeName": volume, "podName": "db-0", "podNamespace": "a", "nodeName": "n1", "Phase": "Completed"}
	}
	require.ElementsMatch(t, []any{
		object{"pvcName": "data", "pvcNamespace": "a", "pvName": "pvc-new", "restoreMethod": "PodVolumeRestore", "snapshotDataMoved": false, "pvrInfo": info("data")},
		object{"restoreMethod": "PodVolumeRestore", "snapshotDataMoved": false, "pvrInfo": info("scratch")},
	}, infos)
}

// A runner that dies at any write, between a Pod and its requests too, has a successor that makes the
// requests that are missing, and no second ones.
func TestASuccessorMakesTheRequestsThatAreMissing(t *testing.T) {
	t.Parallel()
	undisturbed := newFiledScene(t)
	whole := undisturbed.runLife(t, 0, false)
	require.True(t, undisturbed.moveOn(t, ""))
	undisturbed.runLife(t, 0, false)
	want := undisturbed.readOutcome(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, want.Phase)
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint("after the write: ", after), func(t *testing.T) {
			t.Parallel()
			between := false
			for k := 1; k <= whole.writes; k++ {
				b := newFiledScene(t)
				first := b.runLife(t, k, after)
				between = between || b.cluster.Object("/api/v1/namespaces/a/pods/db-0") != nil && b.countRequests() < 2
				b.finishRestore(t, "")
				require.Equal(t, want, b.readOutcome(t), "death at write %d: %s", k, first.what)
			}
			require.True(t, between, "some died between the Pod and its requests")
		})
	}
}

// What a restore began before it was cancelled is cancelled with it.
func TestACancelledRestoreCancelsTheRequestsOfItsPods(t *testing.T) {
	b := newFiledScene(t)
	b.cluster.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if spec, _ := body["spec"].(object); r.Method == http.MethodPost && spec["volume"] == "scratch" {
			b.requestCancel(t, true)
		}
		return 0, false
	})
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseFailed, b.getRestore(t).Status.Phase)
	require.Len(t, b.cancels.Calls(), 2)
	for _, id := range b.cancels.Calls() {
		require.Regexp(t, `^pvr\.[0-9a-f]+\.1$`, id)
	}
}

// The backup names one Pod for the data of a claim; the others that mount it are known by their bodies.
func TestPodsThatShareAClaimAreFoundInTheBackup(t *testing.T) {
	b := newFiledScene(t)
	mounting := object{"spec": object{"containers": []any{object{"name": "db"}}, "volumes": []any{object{"name": "shared", "persistentVolumeClaim": object{"claimName": "data"}}}}}
	b.storeBackup(t, []entry{
		{"persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "data", object{"spec": object{"storageClassName": "fast"}}, nil},
		{"pods", "v1", "Pod", "a", "db-0", mounting, nil},
		{"pods", "v1", "Pod", "a", "web", mounting, nil},
	})
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, 1, b.getRestore(t).Status.RestoreItemOperationsAttempted)
	require.Equal(t, 1, b.countRequests())
	for _, pod := range []string{"db-0", "web"} {
		wait := b.cluster.Object("/api/v1/namespaces/a/pods/" + pod)["spec"].(object)["initContainers"].([]any)[0].(object)
		require.Equal(t, []any{"wait", "uid-r", "--state", "/restore-state", "--pod", pod, "--shared", "shared=2"}, wait["args"])
	}
}
