package job_test

import (
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
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
)

// newMount is a Pod that runs and has mounted a claim of its name's namespace.
func newMount(namespace, name, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-of-pod"},
		Spec: corev1.PodSpec{
			NodeName: "n1", Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// newFilesScene is the restore of files of claims of which one has a file-system backup, one a moved snapshot and one none.
func newFilesScene(t *testing.T, files string, change ...func(*velerov1.Restore)) *bench {
	t.Helper()
	b := newBench(t)
	b.config.RecordBatch = 1
	b.cluster.Serve("velero.io/v1", "podvolumerestores", "PodVolumeRestore", true)
	b.cluster.Put("/api/v1/namespaces/velero", object{"metadata": object{"name": "velero"}})
	claim := func(namespace, name string) entry {
		return entry{"persistentvolumeclaims", "v1", "PersistentVolumeClaim", namespace, name, object{"spec": object{"volumeName": "pv-" + name}}, nil}
	}
	b.storeBackup(t, []entry{
		{"namespaces", "v1", "Namespace", "", "a", nil, nil},
		{"persistentvolumes", "v1", "PersistentVolume", "", "pv-data", object{"spec": object{"claimRef": object{"namespace": "a", "name": "data"}}}, nil},
		claim("a", "data"), claim("a", "moved"), claim("a", "none"), claim("z", "data"),
	})
	b.putObject(t, layout.BackupPodVolumeBackups("b"), `[{"metadata":{"annotations":{"velero.io/pvc-name":"data"}},
		"spec":{"pod":{"namespace":"a","name":"db-0"},"volume":"v","uploaderType":"kopia"},"status":{"phase":"Failed","snapshotID":"snap-data"}}]`)
	b.putObject(t, layout.BackupVolumeInfo("b"), `[
		{"pvcName":"data","pvcNamespace":"a","pvName":"pv-data","backupMethod":"PodVolumeBackup","result":"succeeded","pvbInfo":{"snapshotHandle":"snap-data","podName":"db-0","podNamespace":"a"}},
		{"pvcName":"data","pvcNamespace":"z","pvName":"pv-z","backupMethod":"PodVolumeBackup","result":"succeeded","pvbInfo":{"snapshotHandle":"snap-z","podName":"db-0","podNamespace":"z"}},
		{"pvcName":"moved","pvcNamespace":"a","pvName":"pv-moved","backupMethod":"CSISnapshot","snapshotDataMoved":true,"result":"succeeded","snapshotDataMovementInfo":{"snapshotHandle":"snap-moved","uploaderType":"kopia"}},
		{"pvcName":"none","pvcNamespace":"a","pvName":"pv-none","backupMethod":"CSISnapshot","result":"succeeded","csiSnapshotInfo":{"snapshotHandle":"s"}}]`)
	b.createRestore(t, true, append(change, func(r *velerov1.Restore) { r.Annotations = map[string]string{"holdfast.io/files": files} })...)
	b.runner = newRunner(b.config)
	return b
}

// requestFor returns the PodVolumeRestore from a snapshot.
func (b *bench) requestFor(snapshot string) object {
	for path := range b.cluster.Content() {
		if spec, _ := b.cluster.Object(path)["spec"].(object); strings.Contains(path, "/podvolumerestores/") && spec["snapshotID"] == snapshot {
			return spec
		}
	}
	return nil
}

// Files of a claim are written by a request into the volume of a Pod that runs; no object is restored.
func TestFilesAreRestoredIntoPodsThatRun(t *testing.T) {
	b := newFilesScene(t, `{"a/data":["x, y","etc/$z"],"a/moved":["m"]}`, func(r *velerov1.Restore) { r.Spec.NamespaceMapping = map[string]string{"a": "copy"} })
	require.NoError(t, b.client.Create(t.Context(), newMount("copy", "db-0", "data")))
	require.NoError(t, b.client.Create(t.Context(), newMount("copy", "db-1", "moved")))
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseWaitingForPluginOperations, r.Status.Phase, r.Status.FailureReason)
	require.Equal(t, 2, r.Status.RestoreItemOperationsAttempted)
	require.Equal(t, &velerov1.RestoreProgress{TotalItems: 2, ItemsRestored: 2}, r.Status.Progress)
	for _, request := range b.cluster.Requests(http.MethodPost + " ") {
		require.Contains(t, request, "/podvolumerestores", "nothing else is created")
	}
	data := b.requestFor("snap-data")
	require.Equal(t, object{"kind": "Pod", "namespace": "copy", "name": "db-0", "uid": "uid-of-pod"}, data["pod"])
	require.Equal(t, []any{"v", "a"}, []any{data["volume"], data["sourceNamespace"]})
	require.Equal(t, object{"Overwrite": "true", "Paths": `["x, y","etc/$z"]`}, data["uploaderSettings"])
	require.Equal(t, object{"Overwrite": "true", "Paths": `["m"]`}, b.requestFor("snap-moved")["uploaderSettings"])

	require.True(t, b.moveOn(t, "the disk is full"))
	b.config.Claims = &jobtest.Holder{Name: "next"}
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	r = b.getRestore(t)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase, r.Status.FailureReason)
	require.Equal(t, []int{2, 1}, []int{r.Status.Errors, r.Status.Warnings})
	results := b.readGzip(t, layout.RestoreResults("r"))
	require.Contains(t, results, "failed: the disk is full")
	require.Contains(t, results, "its PodVolumeBackup is Failed")
}

// Each claim whose files cannot be restored is an error that names it, and the others are restored.
func TestFilesThatCannotBeRestored(t *testing.T) {
	b := newFilesScene(t, `{"a/data":["x"],"a/moved":["x"],"a/none":["x"],"z/data":["x"]}`, func(r *velerov1.Restore) { r.Spec.NamespaceMapping = map[string]string{"z": "a"} })
	ended := newMount("a", "job", "moved")
	ended.Status.Phase = corev1.PodSucceeded
	for _, pod := range []*corev1.Pod{newMount("a", "db-0", "data"), newMount("a", "db-1", "none"), ended} {
		require.NoError(t, b.client.Create(t.Context(), pod))
	}
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, 1, b.countRequests())
	require.NotNil(t, b.requestFor("snap-data"))
	require.True(t, b.moveOn(t, ""))
	b.config.Claims = &jobtest.Holder{Name: "next"}
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase, r.Status.FailureReason)
	require.Equal(t, 3, r.Status.Errors)
	results := b.readGzip(t, layout.RestoreResults("r"))
	for claim, why := range map[string]string{
		"a/moved": "no Pod that runs mounts it for writing", "a/none": "the backup has no files of it, but CSISnapshot", "a/data": "the files of claim a/data go to the same one",
	} {
		require.Contains(t, results, "claim "+claim+": its files are not restored: "+why)
	}
}

// What Velero's node-agent serves would wait for ever.
func TestVelerosAgentRestoresNoFiles(t *testing.T) {
	b := newFilesScene(t, `{"a/data":["x"]}`)
	agent := newMount("velero", "node-agent", "none")
	agent.Labels = map[string]string{"role": "node-agent"}
	require.NoError(t, b.client.Create(t.Context(), agent))
	require.NoError(t, b.client.Create(t.Context(), newMount("a", "db-0", "data")))
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, b.getRestore(t).Status.Phase)
	require.Zero(t, b.countRequests())
	require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "claim a/data: its files are not restored: a node-agent of Velero's runs")
}

func TestFilesOfAClaimThatTheBackupLacks(t *testing.T) {
	b := newFilesScene(t, `{"a/data":["x"],"a/other":["x"]}`)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailedValidation, r.Status.Phase, r.Status.FailureReason)
	require.Equal(t, []string{`metadata.annotations[holdfast.io/files]: item persistentvolumeclaims/a/other: the backup holds no PersistentVolumeClaim "other" in namespace "a"`}, r.Status.ValidationErrors)
	require.Zero(t, b.countRequests())
}

// A runner that dies at any write has a successor that makes the requests that are missing, and no second ones.
func TestASuccessorRequestsTheFilesThatAreMissing(t *testing.T) {
	t.Parallel()
	scene := func() *bench {
		b := newFilesScene(t, `{"a/data":["x"],"a/moved":["x"]}`)
		require.NoError(t, b.client.Create(t.Context(), newMount("a", "db-0", "data")))
		require.NoError(t, b.client.Create(t.Context(), newMount("a", "db-1", "moved")))
		return b
	}
	whole := scene().runLife(t, 0, false)
	require.Positive(t, whole.writes)
	for _, after := range []bool{false, true} {
		for k := 1; k <= whole.writes; k++ {
			b := scene()
			b.runLife(t, k, after)
			b.runLife(t, 0, false)
			require.Equal(t, 2, b.countRequests(), fmt.Sprint(k, after))
			r := b.getRestore(t)
			require.Equal(t, velerov1.RestorePhaseWaitingForPluginOperations, r.Status.Phase, r.Status.FailureReason)
			require.Equal(t, 2, r.Status.RestoreItemOperationsAttempted, fmt.Sprint(k, after))
		}
	}
}

func TestARestoreOfFilesHasNoDryRun(t *testing.T) {
	b := newPlanBench(t)
	r := newPlannedRestore("")
	r.Annotations = map[string]string{"holdfast.io/files": `{"a/data":["x"]}`}
	_, err := job.New(b.config.Config).PlanRestore(t.Context(), &job.PlanRequest{Restore: r})
	require.ErrorContains(t, err, "metadata.annotations[holdfast.io/files]: a restore of files has no dry run")
}
