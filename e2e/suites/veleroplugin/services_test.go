//go:build velero

package veleroplugin_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
)

// vendorPods are what the plugin of Velero's framework behaves by: it is called for pods with its
// label and looks at their names.
var vendorPods = []string{"good", "skip", "kept", "error", "panic", "exit", "operation", "operation-fails"}

// buildPlugin compiles the plugin into a directory of its own.
func buildPlugin(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "velerofw"), ".")
	cmd.Dir = "../../tools/velerofw"
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

func vendorSite(t *testing.T) (*site.Site, *site.Bucket) {
	t.Helper()
	dir := buildPlugin(t)
	args := []string{"--plugin-dir", dir}
	s := site.Start(t, site.Config{Args: map[string][]string{
		"backup-runner": args, "restore-runner": args, "deletion": args,
		"async-operation-monitor": append(args, "--item-operation-sync-frequency=1s"),
	}})
	bucket, path := site.FileBucket(t, "vendor")
	s.ReachFiles(t, path, bucket)
	s.Namespace(t, "a")
	for _, name := range append(vendorPods, "unlabelled") {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: map[string]string{"velerofw": "x"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/image"}}},
		}
		if name == "unlabelled" {
			pod.Labels = nil
		}
		require.Eventually(t, func() bool { return s.Client.Create(t.Context(), pod.DeepCopy()) == nil }, site.Patience, site.Look,
			"the namespace has its service account")
	}
	require.NoError(t, s.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "velerofw"}}))
	return s, bucket
}

// TestVelerosFrameworkInTheServices runs a plugin that knows nothing of Holdfast through a backup,
// a restore and a deletion.
func TestVelerosFrameworkInTheServices(t *testing.T) {
	s, bucket := vendorSite(t)
	t.Run("volumes", func(t *testing.T) { vendorVolumes(t, s, bucket) })

	s.Backup(t, "b", bucket, "a")
	b := s.BackupEnds(t, "b")
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, b.Status.Phase, b.Status.FailureReason)
	backedUp(t, bucket, b)

	s.Restore(t, "r", "b", "a", "a-copy")
	r := s.RestoreEnds(t, "r")
	results := string(bucket.ReadZipped(t, "restores/r/restore-r-results.gz"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase, results)
	require.Equal(t, 1, r.Status.Errors, results)
	require.Contains(t, results, "velerofw breaks")
	restoreOperated(t, bucket, r)
	copied := func(name string) (*corev1.Pod, error) {
		pod := &corev1.Pod{}
		return pod, s.Client.Get(t.Context(), client.ObjectKey{Namespace: "a-copy", Name: name}, pod)
	}
	pod, err := copied("good")
	require.NoError(t, err)
	require.Equal(t, "r of good", pod.Annotations["velerofw.io/restore"])
	require.Equal(t, "r", pod.Annotations["velerofw.io/restore-v2"])
	require.Equal(t, "b", pod.Annotations["velerofw.io/backup-v2"], "as it was stored")
	secret := &corev1.Secret{}
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: "a-copy", Name: "velerofw"}, secret))
	require.False(t, pod.CreationTimestamp.Before(&secret.CreationTimestamp), "what the pod waits for comes first")
	_, err = copied("skip")
	require.True(t, apierrors.IsNotFound(err))
	pod, err = copied("unlabelled")
	require.NoError(t, err)
	require.NotContains(t, pod.Annotations, "velerofw.io/restore")

	d := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "d"}}
	d.Spec.BackupName = "b"
	require.NoError(t, s.Client.Create(t.Context(), d))
	require.Eventually(t, func() bool {
		return s.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d) == nil && len(d.Status.Errors) > 0
	}, site.Patience, site.Look)
	require.Equal(t, velerov1.DeleteBackupRequestPhaseInProgress, d.Status.Phase, "it waits for its next try")
	require.Len(t, d.Status.Errors, 1)
	require.Contains(t, d.Status.Errors[0], "plugin velerofw.io/delete: Execute of Pod a/kept: velerofw cannot delete what b holds")
	require.Contains(t, bucket.Keys(t), "backups/b/b.tar.gz", "nothing is removed before all actions are done")
}

// backedUp checks what the plugin made of each pod.
func backedUp(t *testing.T, bucket *site.Bucket, b *velerov1.Backup) {
	t.Helper()
	results := string(bucket.ReadZipped(t, "backups/b/b-results.gz"))
	for _, want := range []string{
		"plugin velerofw.io/backup: Execute of Pod a/error: velerofw refuses",
		"plugin velerofw.io/backup: Execute of Pod a/panic: plugin panicked",
		"plugin velerofw.io/backup: Execute of Pod a/exit: plugin process died",
	} {
		require.Contains(t, results, want)
	}
	require.Equal(t, 2, strings.Count(results, "velerofw breaks"), results)
	// A question about another object may meet the deaths that one object causes.
	questions := strings.Count(results, "GetRelatedItems of Pod")
	require.Equal(t, 5+questions, b.Status.Errors, results)
	checkOperations(t, bucket, b)
	log := string(bucket.ReadZipped(t, "backups/b/b-logs.gz"))
	require.Contains(t, log, "backup v1 executed")

	pods := map[string]corev1.Pod{}
	bucket.EachStored(t, "b", func(path string, content []byte) {
		if name, ok := strings.CutPrefix(path, "resources/pods/namespaces/a/"); ok {
			var pod corev1.Pod
			require.NoError(t, json.Unmarshal(content, &pod))
			pods[strings.TrimSuffix(name, ".json")] = pod
		}
	})
	for _, name := range []string{"good", "skip", "kept", "operation", "operation-fails"} {
		require.Equal(t, "b", pods[name].Annotations["velerofw.io/backup"], name)
		require.Equal(t, "b", pods[name].Annotations["velerofw.io/backup-v2"], name)
	}
	require.Contains(t, pods, "unlabelled")
	require.NotContains(t, pods["unlabelled"].Annotations, "velerofw.io/backup")
	for _, name := range []string{"error", "panic", "exit"} {
		require.NotContains(t, pods, name)
	}
}

// restoreOperated checks the operations of the restore's action of version 2.
func restoreOperated(t *testing.T, bucket *site.Bucket, r *velerov1.Restore) {
	t.Helper()
	counts := []int{r.Status.RestoreItemOperationsAttempted, r.Status.RestoreItemOperationsCompleted, r.Status.RestoreItemOperationsFailed}
	require.Equal(t, []int{2, 1, 1}, counts)
	list, err := itemoperation.Decode(bytes.NewReader(bucket.Read(t, "restores/r/restore-r-itemoperations.json.gz")))
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, o := range list {
		require.Equal(t, "velerofw.io/restore-v2", o.Spec.RestoreAction)
		require.Equal(t, itemoperation.Resource{Resource: "pods", Namespace: "a-copy", Name: o.Spec.Resource.Name}, o.Spec.Resource)
		if o.Spec.Resource.Name == "operation" {
			require.Equal(t, []string{"op-r", itemoperation.PhaseCompleted, "Bytes"}, []string{o.Spec.ID, o.Status.Phase, o.Status.Units})
			continue
		}
		require.Equal(t, []string{"operation-fails", "broken-r", itemoperation.PhaseFailed, "velerofw breaks"},
			[]string{o.Spec.Resource.Name, o.Spec.ID, o.Status.Phase, o.Status.Error})
	}
}

// checkOperations checks the operations of both actions of version 2.
func checkOperations(t *testing.T, bucket *site.Bucket, b *velerov1.Backup) {
	t.Helper()
	counts := []int{b.Status.BackupItemOperationsAttempted, b.Status.BackupItemOperationsCompleted, b.Status.BackupItemOperationsFailed}
	require.Equal(t, []int{4, 2, 2}, counts)
	list, err := itemoperation.Decode(bytes.NewReader(bucket.Read(t, "backups/b/b-itemoperations.json.gz")))
	require.NoError(t, err)
	ended := map[string]itemoperation.Operation{}
	for _, o := range list {
		require.Equal(t, []itemoperation.Resource{{Resource: "secrets", Namespace: "a", Name: "velerofw"}}, o.Spec.After)
		ended[o.Spec.Action()+" "+o.Spec.Resource.Name] = o
	}
	require.Len(t, ended, 4)
	for _, action := range []string{"velerofw.io/backup-v2", "velerofw.io/both"} {
		good, bad := ended[action+" operation"], ended[action+" operation-fails"]
		require.Equal(t, []string{"op-b", itemoperation.PhaseCompleted, "Bytes"}, []string{good.Spec.ID, good.Status.Phase, good.Status.Units})
		require.Equal(t, []int64{3, 3}, []int64{good.Status.Completed, good.Status.Total})
		require.Equal(t, []string{"broken-b", itemoperation.PhaseFailed, "velerofw breaks"}, []string{bad.Spec.ID, bad.Status.Phase, bad.Status.Error})
	}
}
