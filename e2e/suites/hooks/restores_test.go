package hooks

import (
	"strings"
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

const postRestore = "post.hook.restore.velero.io/"

func TestHooksOfRestores(t *testing.T) {
	b := newBed(t)
	t.Run("spec", b.restoreSpec)
	t.Run("annotations", b.restoreAnnotations)
	t.Run("failures", b.restoreFailures)
	t.Run("fail", b.restoreFail)
	t.Run("pod that does not run", b.restoreNeverRuns)
	t.Run("killed before", b.killedBefore)
	t.Run("killed in", b.killedIn)
	t.Run("killed after", b.killedAfter)
}

// restoreWithHooks backs up a Pod of a name, in a namespace of its name, and restores it into <name>-new with
// hooks in its spec. It returns when the Pod is created, which nothing runs yet.
func (b *bed) restoreWithHooks(t *testing.T, name string, annotations map[string]string, commands ...velerov1.ExecRestoreHook) (namespace string) {
	t.Helper()
	b.createPod(t, name, annotations)
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
	namespace := b.restoreWithHooks(t, name, nil, execHook("", "one", "--all"), ready)
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, false))
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true, "side"))
	b.awaitRan(t, namespace, "spec side two")
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true))
	b.requireEnd(t, name, velerov1.RestorePhaseCompleted, 2, 0)
	b.awaitRan(t, namespace, "spec side two", "spec main one")
	require.Contains(t, string(b.bucket.ReadZipped(t, layout.RestoreLog(name))), "one done")
}

// restoreAnnotations has annotations in the place of the spec.
func (b *bed) restoreAnnotations(t *testing.T) {
	const name = "annotated"
	namespace := b.restoreWithHooks(t, name, map[string]string{postRestore + "command": `["own", "x"]`, postRestore + "container": "side"}, execHook("", "never"))
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true))
	b.requireEnd(t, name, velerov1.RestorePhaseCompleted, 1, 0)
	b.awaitRan(t, namespace, "annotated side own")
}

// restoreFailures has hooks that fail one after the other, with Continue.
func (b *bed) restoreFailures(t *testing.T) {
	const name = "failures"
	slow := execHook("main", "hang")
	slow.ExecTimeout = metav1.Duration{Duration: time.Second}
	namespace := b.restoreWithHooks(t, name, nil, execHook("main", "fail"), slow, execHook("absent", "x"), execHook("main", "last"))
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true))
	results := b.requireEnd(t, name, velerov1.RestorePhaseCompleted, 4, 3)
	for _, want := range []string{"exit code 3", "it did not end in time: 1s", `no container \"absent\"`, "pods failures-new/failures: hook"} {
		require.Contains(t, results, want)
	}
	b.awaitRan(t, namespace, "failures main fail", "failures main hang", "failures main last")
}

// restoreFail has a hook that fails with Fail: none follows.
func (b *bed) restoreFail(t *testing.T) {
	const name = "strict"
	strict := execHook("main", "fail")
	strict.OnError = velerov1.HookErrorModeFail
	namespace := b.restoreWithHooks(t, name, nil, strict, execHook("side", "never"))
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true))
	results := b.requireEnd(t, name, velerov1.RestorePhasePartiallyFailed, 2, 2)
	require.Contains(t, results, "it did not run: a hook whose onError is Fail has failed before")
	b.awaitRan(t, namespace, "strict main fail")
}

// restoreNeverRuns waits for a Pod that has no node, and for one that is deleted.
func (b *bed) restoreNeverRuns(t *testing.T) {
	const name = "never"
	bounded, endless := execHook("main", "x"), execHook("side", "y")
	bounded.WaitTimeout = metav1.Duration{Duration: time.Second}
	bounded.OnError = velerov1.HookErrorModeContinue
	namespace := b.restoreWithHooks(t, name, nil, bounded, endless)
	require.Eventually(t, func() bool {
		restore := &velerov1.Restore{}
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, restore) == nil && restore.Status.HookStatus != nil && restore.Status.HookStatus.HooksFailed == 1
	}, site.Patience, site.Look, "the first is given up")
	require.NoError(t, b.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, client.GracePeriodSeconds(0)))
	results := b.requireEnd(t, name, velerov1.RestorePhaseCompleted, 2, 2)
	require.Contains(t, results, "could not be used within 1s")
	require.Contains(t, results, "it was deleted")
}

// killRunner ends the runner as a crash would, and starts another.
func (b *bed) killRunner(t *testing.T) {
	t.Helper()
	b.Fleet.Of("restore-runner")[0].Kill()
	_, err := b.Fleet.Revive(t.Context())
	require.NoError(t, err)
}

// killedBefore has a runner die while the Pod is waited for.
func (b *bed) killedBefore(t *testing.T) {
	const name = "before"
	namespace := b.restoreWithHooks(t, name, nil, execHook("", "load"))
	require.Eventually(t, func() bool {
		restore := &velerov1.Restore{}
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, restore) == nil && restore.Status.HookStatus != nil && restore.Status.HookStatus.HooksAttempted == 1
	}, site.Patience, site.Look, "the hook is owed")
	b.killRunner(t)
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true))
	b.requireEnd(t, name, velerov1.RestorePhaseCompleted, 1, 0)
	b.awaitRan(t, namespace, "before main load")
}

// killedIn has a runner die while a hook runs: it is not run again, and the next one is.
func (b *bed) killedIn(t *testing.T) {
	const name = "in"
	hang := execHook("", "hang")
	hang.ExecTimeout = metav1.Duration{Duration: 10 * time.Minute}
	namespace := b.restoreWithHooks(t, name, nil, hang, execHook("", "next"))
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true))
	b.awaitRan(t, namespace, "in main hang")
	b.killRunner(t)
	results := b.requireEnd(t, name, velerov1.RestorePhaseCompleted, 2, 1)
	require.Contains(t, results, "the runner ended while the hook ran, which is not run again")
	b.awaitRan(t, namespace, "in main hang", "in main next")
}

// killedAfter has a runner die when one hook has run and the container of the next does not.
func (b *bed) killedAfter(t *testing.T) {
	const name = "after"
	namespace := b.restoreWithHooks(t, name, nil, execHook("main", "one"), execHook("main", "two"), execHook("side", "three"))
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true, "main"))
	b.awaitRan(t, namespace, "after main one", "after main two")
	require.Eventually(t, func() bool { return b.countRecorded(t, name) >= 2 }, site.Patience, site.Look, "their ends are recorded")
	b.killRunner(t)
	require.NoError(t, b.node.Adopt(t.Context(), namespace, name, true))
	b.requireEnd(t, name, velerov1.RestorePhaseCompleted, 3, 0)
	b.awaitRan(t, namespace, "after main one", "after main two", "after side three")
}

// countRecorded counts the hooks of a restore whose end is durable.
func (b *bed) countRecorded(t *testing.T, name string) (n int) {
	t.Helper()
	for _, key := range b.bucket.Keys(t) {
		if strings.HasPrefix(key, layout.RestoreRecordsPrefix(name)) && strings.Contains(key, "/record-") {
			n += strings.Count(string(b.bucket.ReadZipped(t, key)), `"ended":true`)
		}
	}
	return n
}
