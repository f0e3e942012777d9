package hooks

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/kubelet"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// applications are frozen and thawed by commands; "hang" freezes and does not end by itself.
type applications struct {
	mu     sync.Mutex
	frozen map[string]bool
	ran    []string
}

func (a *applications) runCommand(ctx context.Context, r *kubetest.ExecRequest, stdout, _ io.Writer) error {
	a.mu.Lock()
	a.ran = append(a.ran, r.Namespace+"/"+r.Pod+" "+r.Container+" "+r.Command[0])
	a.frozen[r.Pod] = r.Command[0] == "freeze" || r.Command[0] == "hang"
	a.mu.Unlock()
	if r.Command[0] == "hang" {
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := io.WriteString(stdout, r.Command[0]+" done\n")
	return err
}

func (a *applications) ranCommands(namespace string) (ran []string, frozen bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range a.ran {
		if len(text) > len(namespace) && text[:len(namespace)+1] == namespace+"/" {
			ran = append(ran, text[len(namespace)+1:])
		}
	}
	return ran, a.frozen[namespace]
}

type bed struct {
	*site.Site
	bucket *site.Bucket
	apps   *applications
	node   *kubelet.Node
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{apps: &applications{frozen: map[string]bool{}}}
	b.Site = site.Start(t, site.Config{Args: map[string][]string{
		"backup-runner": {"--claim-timeout=2s"}, "restore-runner": {"--claim-timeout=2s"},
		"queue-scheduler": {"--claim-timeout=2s", "--cancel-deadline=20s"},
	}})
	var dir string
	b.bucket, dir = site.FileBucket(t, "default")
	b.ReachFiles(t, dir, b.bucket)
	var err error
	b.node, err = kubelet.Start(t.Context(), b.Cluster.RestConfig(), "node", &kubetest.ExecHandler{Run: b.apps.runCommand})
	require.NoError(t, err)
	t.Cleanup(b.node.Close)
	return b
}

// createPod runs a Pod in a namespace of its name.
func (b *bed) createPod(t *testing.T, name string, annotations map[string]string) {
	t.Helper()
	b.Namespace(t, name)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}, {Name: "side", Image: "none"}}},
	}
	require.Eventually(t, func() bool { return b.node.Run(t.Context(), pod) == nil }, site.Patience, site.Look, "pod %s runs", name)
}

func (b *bed) createBackup(t *testing.T, name string, hooks velerov1.BackupHooks) {
	t.Helper()
	require.NoError(t, b.Client.Create(t.Context(), &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name},
		Spec: velerov1.BackupSpec{IncludedNamespaces: []string{name}, Hooks: hooks}}))
}

const (
	pre  = "pre.hook.backup.velero.io/"
	post = "post.hook.backup.velero.io/"
)

func TestHooks(t *testing.T) {
	b := newBed(t)
	t.Run("spec and annotations", b.testSucceeding)
	t.Run("cancel", b.testCancelled)
	t.Run("cancel without a runner", b.cancelAbandoned)
	t.Run("of a restore", b.restoreSpec)
	t.Run("of a restore whose runner is killed meanwhile", b.killedIn)
}

func (b *bed) testSucceeding(t *testing.T) {
	const name = "fine"
	b.createPod(t, name, map[string]string{post + "command": `["thaw", "--all"]`, post + "container": "side"})
	b.createBackup(t, name, velerov1.BackupHooks{Resources: []velerov1.BackupResourceHookSpec{{Name: "all", PreHooks: []velerov1.BackupResourceHook{
		{Exec: &velerov1.ExecHook{Command: []string{"freeze"}}}}}}})
	backup := b.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, backup.Status.FailureReason)
	require.Equal(t, &velerov1.HookStatus{HooksAttempted: 2}, backup.Status.HookStatus)
	ran, frozen := b.apps.ranCommands(name)
	require.Equal(t, []string{"fine main freeze", "fine side thaw"}, ran)
	require.False(t, frozen)
}

// A backup that is cancelled while a Pod is frozen thaws it.
func (b *bed) testCancelled(t *testing.T) {
	const name = "stuck"
	b.createPod(t, name, map[string]string{pre + "command": "hang", pre + "timeout": "10m", post + "command": "thaw"})
	b.createBackup(t, name, velerov1.BackupHooks{})
	require.Eventually(t, func() bool { _, frozen := b.apps.ranCommands(name); return frozen }, site.Patience, site.Look, "it is frozen")
	_, err := queuev1.NewQueueServiceClient(b.Dial(t, "queue-scheduler")).CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: name, RequestedBy: "alice"})
	require.NoError(t, err)
	backup := b.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseFailed, backup.Status.Phase)
	require.Contains(t, backup.Status.FailureReason, "cancel")
	ran, frozen := b.apps.ranCommands(name)
	require.Equal(t, []string{"stuck main hang", "stuck main thaw"}, ran)
	require.False(t, frozen)
}

// A backup that is cancelled after its only runner was killed while a Pod was frozen waits for a runner: the next one that starts
// thaws the Pod and ends the backup.
func (b *bed) cancelAbandoned(t *testing.T) {
	const name = "abandoned"
	b.createPod(t, name, map[string]string{pre + "command": "hang", pre + "timeout": "10m", post + "command": "thaw"})
	b.createBackup(t, name, velerov1.BackupHooks{})
	require.Eventually(t, func() bool { _, frozen := b.apps.ranCommands(name); return frozen }, site.Patience, site.Look, "it is frozen")
	runner := b.Fleet.Of("backup-runner")[0]
	runner.Kill()
	<-runner.Done()
	backup := &velerov1.Backup{}
	key := client.ObjectKey{Namespace: site.Server, Name: name}
	require.NoError(t, b.Client.Get(t.Context(), key, backup))
	require.NoError(t, mark.WriteCancelRequest(backup, mark.CancelRequest{By: "alice"}))
	require.NoError(t, b.Client.Update(t.Context(), backup))
	_, err := b.Fleet.Revive(t.Context())
	require.NoError(t, err)
	require.Equal(t, velerov1.BackupPhaseFailed, b.BackupEnds(t, name).Status.Phase)
	require.Eventually(t, func() bool { _, frozen := b.apps.ranCommands(name); return !frozen }, site.Patience, site.Look, "it is thawed")
}
