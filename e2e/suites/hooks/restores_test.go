package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// restoreWithHooks backs up a Pod of a name, in a namespace of its name, and restores it into <name>-new with
// hooks in its spec. It returns when the Pod is created, which nothing runs yet.
func (b *bed) restoreWithHooks(t *testing.T, name string, commands ...velerov1.ExecRestoreHook) (namespace string) {
	t.Helper()
	b.createPod(t, name, nil)
	b.createBackup(t, name, velerov1.BackupHooks{})
	require.Equal(t, velerov1.BackupPhaseCompleted, b.BackupEnds(t, name).Status.Phase)
	namespace = name + "-new"
	spec := velerov1.RestoreSpec{BackupName: name, NamespaceMapping: map[string]string{name: namespace}, Hooks: velerov1.RestoreHooks{
		Resources: []velerov1.RestoreResourceHookSpec{{Name: "all", IncludedNamespaces: []string{namespace}}}}}
	for i := range commands {
		spec.Hooks.Resources[0].PostHooks = append(spec.Hooks.Resources[0].PostHooks, velerov1.RestoreResourceHook{Exec: &commands[i]})
	}
	require.NoError(t, b.Client.Create(t.Context(), &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name}, Spec: spec}))
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Pod{}) == nil
	}, site.Patience, site.Look, "pod %s is restored", name)
	return namespace
}

func execHook(container string, args ...string) velerov1.ExecRestoreHook {
	return velerov1.ExecRestoreHook{Container: container, Command: args}
}

// requireEnd waits for the end of a restore, and returns its results.
func (b *bed) requireEnd(t *testing.T, name string, phase velerov1.RestorePhase, attempted, failed int) (results string) {
	t.Helper()
	restore := b.RestoreEnds(t, name)
	results = string(b.bucket.ReadZipped(t, layout.RestoreResults(name)))
	require.Equal(t, phase, restore.Status.Phase, results)
	require.Equal(t, &velerov1.HookStatus{HooksAttempted: attempted, HooksFailed: failed}, restore.Status.HookStatus, results)
	return results
}

// awaitRan waits until this ran in a namespace.
func (b *bed) awaitRan(t *testing.T, namespace string, want ...string) {
	t.Helper()
	require.Eventually(t, func() bool { ran, _ := b.apps.ranCommands(namespace); return len(ran) >= len(want) }, site.Patience, site.Look, "%v ran", want)
	ran, _ := b.apps.ranCommands(namespace)
	require.Equal(t, want, ran)
}

// restoreSpec waits for each container, and for its readiness where a hook requires that.
func (b *bed) restoreSpec(t *testing.T) {
	const name = "spec"
	ready := execHook("side", "two")
	ready.WaitForReady = ptr.To(true)
	namespace := b.restoreWithHooks(t, name, execHook("", "one", "--all"), ready)
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, false))
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true, "side"))
	b.awaitRan(t, namespace, "spec side two")
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true))
	b.requireEnd(t, name, velerov1.RestorePhaseCompleted, 2, 0)
	b.awaitRan(t, namespace, "spec side two", "spec main one")
	require.Contains(t, string(b.bucket.ReadZipped(t, layout.RestoreLog(name))), "one done")
}

// killedIn has a runner die while a hook runs: it is not run again, and the next one is.
func (b *bed) killedIn(t *testing.T) {
	const name = "in"
	hang := execHook("", "hang")
	hang.ExecTimeout = metav1.Duration{Duration: 10 * time.Minute}
	namespace := b.restoreWithHooks(t, name, hang, execHook("", "next"))
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true))
	b.awaitRan(t, namespace, "in main hang")
	b.Kill(t, "restore-runner")
	results := b.requireEnd(t, name, velerov1.RestorePhaseCompleted, 2, 1)
	require.Contains(t, results, "the runner ended while the hook ran, which is not run again")
	b.awaitRan(t, namespace, "in main hang", "in main next")
}
