package operations

import (
	"encoding/json"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// The actions on LimitRanges whose operations run in the plugin's process, and may be begun once
// more when it has ended.
const (
	againAction   = "own.example.com/again"
	againRestores = "own.example.com/again-restores"
)

// limits makes objects that operations of those actions are begun for: "ends" has one that ends
// once it was begun a second time, "endless" one that never ends.
func (b *bed) limits(t *testing.T, namespace, annotation string) {
	t.Helper()
	for name, o := range map[string]order{"ends": {Seconds: 1e6, Start: second}, "endless": {Seconds: 1e6}} {
		text, err := json.Marshal(o)
		require.NoError(t, err)
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{annotation: string(text)}}
		require.NoError(t, b.Client.Create(t.Context(), &corev1.LimitRange{ObjectMeta: meta, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{}}}))
	}
}

// deaths are the ways to end operations in a process of a plugin.
func (b *bed) deaths(runner string) map[string]func(t *testing.T, pid int) {
	return map[string]func(t *testing.T, pid int){
		"-plugin": func(t *testing.T, pid int) { require.NoError(t, syscall.Kill(pid, syscall.SIGKILL)) },
		"-runner": func(t *testing.T, _ int) { b.kill(t, runner) },
	}
}

// diesTwice kills the process of the operations twice while it is polled: each operation is begun
// once more, with its key, and the endless one fails the second time.
func (b *bed) diesTwice(t *testing.T, job string, kill func(t *testing.T, pid int), completed func() int) {
	t.Helper()
	kill(t, b.insiders(t, job))
	require.Eventually(t, func() bool { return completed() == 1 }, site.Patience, site.Look, "one ends once it was begun once more")
	kill(t, b.insiders(t, job))
}

// startedTwice requires two calls of Start with one key for each of the objects.
func (b *bed) startedTwice(t *testing.T, job string) {
	t.Helper()
	starts := b.calls.of(t, "start", job)
	for _, item := range []string{"ends", "endless"} {
		require.Len(t, starts[item], 2, item)
		require.NotEmpty(t, starts[item][0].key)
		require.Equal(t, starts[item][0].key, starts[item][1].key)
	}
}

const lostTwice = "it had been begun once more"

// homesReturn has operations of a backup begun once more.
func (b *bed) homesReturn(t *testing.T) {
	for suffix, kill := range b.deaths("backup-runner") {
		name := "again" + suffix
		b.Namespace(t, name)
		b.limits(t, name, orderKey)
		b.Backup(t, name, b.bucket, name)
		b.waits(t, name, velerov1.BackupPhaseWaitingForPluginOperations)
		b.diesTwice(t, name, kill, func() int { return b.get(t, name).Status.BackupItemOperationsCompleted })
		b.ends(t, name, velerov1.BackupPhasePartiallyFailed, 1, 1)
		messages := b.messages(t, name)
		require.Len(t, messages, 1)
		require.Contains(t, messages[0], lostTwice)
		b.startedTwice(t, name)
	}
}

// restoredHomesReturn has operations of a restore begun once more.
func (b *bed) restoredHomesReturn(t *testing.T) {
	for suffix, kill := range b.deaths("restore-runner") {
		name := "restored-again" + suffix
		b.Namespace(t, name)
		b.limits(t, name, restoreOrderKey)
		b.Backup(t, name, b.bucket, name)
		require.Equal(t, velerov1.BackupPhaseCompleted, b.BackupEnds(t, name).Status.Phase)
		b.Restore(t, name, name, name, name+"-copy")
		b.restoreWaits(t, name)
		b.diesTwice(t, name, kill, func() int {
			r := &velerov1.Restore{}
			require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, r))
			return r.Status.RestoreItemOperationsCompleted
		})
		r := b.RestoreEnds(t, name)
		require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase, r.Status.FailureReason)
		file := b.restoreOperations(t, name)
		require.Equal(t, "Completed", file["ends"].Status.Phase)
		require.Contains(t, file["endless"].Status.Error, lostTwice)
		b.startedTwice(t, name)
	}
}
