package restore_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// node sets the container states that the test configures, and runs commands: "fail" fails, and
// "hang" runs until it is cut off.
type node struct {
	cluster *kubetest.Server
	// look sets the status of a Pod before it is read for the n-th time, from 1 on.
	look func(path string, n int)

	mu    sync.Mutex
	looks map[string]int
	ran   []string
	busy  map[string]int
	most  int // commands at once in one Pod
	calls func(command string)
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{cluster: kubetest.Start(t), looks: map[string]int{}, busy: map[string]int{}}
	n.look = func(path string, _ int) { n.startContainers(path, "main", "side") }
	n.cluster.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/pods/") {
			n.mu.Lock()
			n.looks[r.URL.Path]++
			seen := n.looks[r.URL.Path]
			n.mu.Unlock()
			n.look(r.URL.Path, seen)
		}
		return 0, false
	})
	return n
}

// setStatus sets the status of a Pod.
func (n *node) setStatus(path string, status object) {
	n.cluster.Change(path, func(pod map[string]any) { pod["status"] = status })
}

// startContainers lets containers run, which are ready.
func (n *node) startContainers(path string, containers ...string) {
	var all []any
	for _, name := range containers {
		all = append(all, object{"name": name, "ready": true, "state": object{"running": object{}}})
	}
	n.setStatus(path, object{"phase": "Running", "containerStatuses": all})
}

func (n *node) enterCommand(cmd *podexec.Command) (leave func()) {
	pod := cmd.Namespace + "/" + cmd.Pod
	n.mu.Lock()
	n.ran = append(n.ran, pod+" "+cmd.Container+" "+strings.Join(cmd.Args, " "))
	n.busy[pod]++
	n.most = max(n.most, n.busy[pod])
	n.mu.Unlock()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.busy[pod]--
	}
}

// Run implements restore.Executor.
func (n *node) Run(ctx context.Context, cmd *podexec.Command) (podexec.Output, error) {
	defer n.enterCommand(cmd)()
	if n.calls != nil {
		n.calls(cmd.Args[0])
	}
	switch cmd.Args[0] {
	case "fail":
		return podexec.Output{Stderr: "no"}, errors.New("command terminated with exit code 3")
	case "hang":
		<-ctx.Done()
		return podexec.Output{}, context.Cause(ctx)
	}
	return podexec.Output{Stdout: "done"}, nil
}

func (n *node) ranCommands() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.ran)
}

func (n *node) setExec(c *restore.Config) { c.Exec = n }

// addPod stores a Pod with containers main and side.
func (b *backup) addPod(namespace, name string, annotations object) {
	b.addObject("pods", "v1", "Pod", namespace, name, object{"metadata": object{"annotations": annotations, "labels": object{"app": name}},
		"spec":   object{"restartPolicy": "OnFailure", "containers": []any{object{"name": "main", "image": "i"}, object{"name": "side", "image": "i"}}},
		"status": object{"phase": "Running"}})
}

const postHook = "post.hook.restore.velero.io/"

// specHooks are a spec's for Pods of a label; no label is all Pods.
func specHooks(app string, commands ...velerov1.ExecRestoreHook) velerov1.RestoreResourceHookSpec {
	set := velerov1.RestoreResourceHookSpec{Name: "h"}
	if app != "" {
		set.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	for i := range commands {
		set.PostHooks = append(set.PostHooks, velerov1.RestoreResourceHook{Exec: &commands[i]})
	}
	return set
}

func execHook(container string, args ...string) velerov1.ExecRestoreHook {
	return velerov1.ExecRestoreHook{Container: container, Command: args}
}

func failingHook(h velerov1.ExecRestoreHook) velerov1.ExecRestoreHook {
	h.OnError = velerov1.HookErrorModeFail
	return h
}

func hookWithin(h velerov1.ExecRestoreHook, wait time.Duration) velerov1.ExecRestoreHook {
	h.WaitTimeout = metav1.Duration{Duration: wait}
	return h
}

func specOf(sets ...velerov1.RestoreResourceHookSpec) velerov1.RestoreSpec {
	return velerov1.RestoreSpec{Hooks: velerov1.RestoreHooks{Resources: sets}}
}

// All hooks of a container run before those of another, in the order of the spec, one at a time;
// annotations take the place of the spec; names are those of the cluster restored to.
func TestHooksRunInTheirOrder(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", nil)
	b.addPod("a", "own", object{postHook + "command": `["own", "x"]`, postHook + "container": "side"})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	first := specHooks("", execHook("", "one"), execHook("side", "two"), execHook("main", "three"))
	first.IncludedNamespaces = []string{"b"}
	elsewhere := specHooks("", execHook("", "never"))
	elsewhere.IncludedNamespaces = []string{"a"}
	spec := specOf(first, elsewhere)
	spec.NamespaceMapping = map[string]string{"a": "b"}
	f := runRestore(t, n.cluster, b, spec, n.setExec)
	require.Empty(t, f.results.Errors.allMessages()+f.results.Warnings.allMessages())
	ran := n.ranCommands()
	require.Equal(t, []string{"b/own side own x"}, slices.DeleteFunc(slices.Clone(ran), func(s string) bool { return !strings.Contains(s, "own") }))
	require.Equal(t, []string{"b/db main one", "b/db main three", "b/db side two"}, slices.DeleteFunc(ran, func(s string) bool { return strings.Contains(s, "own") }))
	require.Equal(t, 1, n.most)
	c := f.recorder.Counts()
	require.Equal(t, []int{4, 0}, []int{c.Hooks, c.HooksFailed})
	require.Empty(t, f.recorder.Owed())
}

func TestADryRunCountsHooks(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", nil)
	f := runRestore(t, n.cluster, b, specOf(specHooks("", execHook("", "one"), execHook("side", "two"))), n.setExec,
		func(c *restore.Config) { c.DryRun = &apply.DryRun{} })
	var said []string
	f.EachRecord(t, func(rec *outcome.Record) {
		for _, line := range rec.Log {
			said = append(said, line.Message)
		}
	})
	require.Equal(t, []string{"hooks would run in it: 2"}, said)
	require.Empty(t, n.ranCommands())
	require.Empty(t, f.recorder.Owed())
}

// The container that runs first has its hooks run first.
func TestHooksFollowTheirContainers(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", nil)
	n.look = func(path string, _ int) {
		if len(n.ranCommands()) == 0 {
			n.startContainers(path, "side")
			return
		}
		n.startContainers(path, "main", "side")
	}
	runRestore(t, n.cluster, b, specOf(specHooks("", execHook("main", "one"), execHook("side", "two"))), n.setExec)
	require.Equal(t, []string{"a/db side two", "a/db main one"}, n.ranCommands())
}

// One hook that waits for readiness makes all hooks of the Pod wait.
func TestHooksWaitUntilTheContainerIsReady(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", nil)
	n.look = func(path string, seen int) {
		if len(n.ranCommands()) > 0 && seen < 3 {
			t.Error("it was not ready")
		}
		n.setStatus(path, object{"phase": "Running", "containerStatuses": []any{
			object{"name": "main", "ready": seen >= 3, "state": object{"running": object{}}}}})
	}
	ready := execHook("main", "two")
	ready.WaitForReady = ptr.To(true)
	f := runRestore(t, n.cluster, b, specOf(specHooks("", execHook("main", "one"), ready)), n.setExec)
	require.Equal(t, []string{"a/db main one", "a/db main two"}, n.ranCommands())
	require.Empty(t, f.results.Warnings.allMessages())
}

// A Pod whose container starts only when the hook of another has run holds nothing up: not the
// other Pod, and not the objects behind it.
func TestAPodWaitsForItsOwnContainersOnly(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "late", object{postHook + "command": "late"})
	b.addPod("a", "soon", object{postHook + "command": "soon"})
	b.addObject("services", "v1", "Service", "a", "behind", nil)
	n.look = func(path string, _ int) {
		if strings.HasSuffix(path, "/soon") || slices.Contains(n.ranCommands(), "a/soon main soon") && n.cluster.Object("/api/v1/namespaces/a/services/behind") != nil {
			n.startContainers(path, "main", "side")
		}
	}
	f := runRestore(t, n.cluster, b, velerov1.RestoreSpec{}, n.setExec)
	require.Equal(t, []string{"a/soon main soon", "a/late main late"}, n.ranCommands())
	require.Empty(t, f.results.Errors.allMessages()+f.results.Warnings.allMessages())
}

// Hooks are for Pods that the restore creates.
func TestPodsThatWereThereRunNoHooks(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", nil)
	n.cluster.Put("/api/v1/namespaces/a", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "a"}})
	n.cluster.Put("/api/v1/namespaces/a/pods/db", object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "db", "namespace": "a"}})
	f := runRestore(t, n.cluster, b, specOf(specHooks("", execHook("", "never"))), n.setExec)
	require.Empty(t, n.ranCommands())
	require.Zero(t, f.recorder.Counts().Hooks)
}

// With Continue, which is the default, a failure is a warning and the next hook runs.
func TestAHookThatFailsIsAWarning(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", nil)
	slow := execHook("main", "hang")
	slow.ExecTimeout = metav1.Duration{Duration: time.Millisecond}
	f := runRestore(t, n.cluster, b, specOf(specHooks("", execHook("main", "fail"), slow, execHook("absent", "x"), execHook("main", "last"))), n.setExec)
	require.Equal(t, []string{"a/db main fail", "a/db main hang", "a/db main last"}, n.ranCommands())
	require.Empty(t, f.results.Errors.allMessages())
	warnings := f.results.Warnings.allMessages()
	for _, want := range []string{
		`pods a/db: hook ["fail"] in container main (spec.hooks.resources[0].postHooks[0].exec) failed: command terminated with exit code 3`,
		`hook ["hang"] in container main (spec.hooks.resources[0].postHooks[1].exec) failed: it did not end in time: 1ms`,
		`hook ["x"] in container absent (spec.hooks.resources[0].postHooks[2].exec) failed: it did not run: the pod has no container "absent", it has main, side`,
	} {
		require.Contains(t, warnings, want)
	}
	c := f.recorder.Counts()
	require.Equal(t, []int{4, 3}, []int{c.Hooks, c.HooksFailed})
}

// With Fail it is an error, and no other hook of the restore begins.
func TestAFailureEndsAllHooks(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "first", nil)
	b.addPod("a", "other", nil)
	n.look = func(path string, _ int) {
		if strings.HasSuffix(path, "/first") {
			n.startContainers(path, "main")
		}
	}
	f := runRestore(t, n.cluster, b, specOf(specHooks("first", failingHook(execHook("main", "fail")), execHook("main", "next")), specHooks("other", failingHook(execHook("main", "other")))), n.setExec)
	require.Equal(t, []string{"a/first main fail"}, n.ranCommands())
	errs := f.results.Errors.allMessages()
	require.Contains(t, errs, "exit code 3")
	require.Contains(t, errs, `pods a/other: hook ["other"] in container main`)
	require.Contains(t, errs, "it did not run: a hook whose onError is Fail has failed before: pods a/first: spec.hooks.resources[0].postHooks[0].exec")
	require.Contains(t, f.results.Warnings.allMessages(), `pods a/first: hook ["next"]`)
	c := f.recorder.Counts()
	require.Equal(t, []int{3, 3, 2}, []int{c.Hooks, c.HooksFailed, c.Errors})
}

// A Pod whose hooks cannot run any more is not waited for, and the message has the reason.
func TestHooksOfPodsThatWillNeverRunThem(t *testing.T) {
	const path = "/api/v1/namespaces/a/pods/db"
	waiting := func(n *node, state object) {
		n.setStatus(path, object{"phase": "Pending", "containerStatuses": []any{object{"name": "main", "state": state}}})
	}
	for want, tt := range map[string]struct {
		wait time.Duration
		look func(n *node)
	}{
		"it was deleted": {0, func(n *node) { n.cluster.Delete(path) }},
		"there is another of its name": {0, func(n *node) {
			n.cluster.Delete(path)
			n.cluster.Put(path, object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "db", "namespace": "a"}})
			n.startContainers(path, "main")
		}},
		"it is being deleted": {0, func(n *node) {
			n.cluster.Change(path, func(pod map[string]any) { kubetest.Meta(pod)["deletionTimestamp"] = "2026-01-01T00:00:00Z" })
		}},
		"it has ended: Failed: Evicted": {0, func(n *node) { n.setStatus(path, object{"phase": "Failed", "reason": "Evicted"}) }},
		"the container has ended with exit code 0: Completed": {0, func(n *node) {
			waiting(n, object{"terminated": object{"exitCode": 0.0, "reason": "Completed"}})
		}},
		"could not be used within 1ms: the pod is not scheduled: Unschedulable: no node": {time.Millisecond, func(n *node) {
			n.setStatus(path, object{"phase": "Pending", "conditions": []any{object{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}}})
		}},
		"could not be used within 1ms: it waits: CrashLoopBackOff: back-off": {time.Millisecond, func(n *node) {
			waiting(n, object{"waiting": object{"reason": "CrashLoopBackOff", "message": "back-off"}})
		}},
		"could not be used within 1ms: it has ended with exit code 1": {time.Millisecond, func(n *node) { waiting(n, object{"terminated": object{"exitCode": 1.0}}) }},
	} {
		t.Run(want, func(t *testing.T) {
			n, b := newNode(t), &backup{}
			b.addPod("a", "db", nil)
			n.look = func(string, int) { tt.look(n) }
			f := runRestore(t, n.cluster, b, specOf(specHooks("", failingHook(hookWithin(execHook("main", "never"), tt.wait)))), n.setExec)
			require.Empty(t, n.ranCommands())
			errs := f.results.Errors.allMessages()
			require.Contains(t, errs, `pods a/db: hook ["never"] in container main (spec.hooks.resources[0].postHooks[0].exec) failed: it did not run`)
			require.Contains(t, errs, want)
		})
	}
}

// Sidecars and ephemeral containers run hooks. A sidecar that ended is started again, also in a Pod whose
// restart policy is Never; an init container that succeeded, and an ephemeral one, are not.
func TestHooksInContainersOfEveryKind(t *testing.T) {
	const path = "/api/v1/namespaces/a/pods/db"
	n, b := newNode(t), &backup{}
	b.addObject("pods", "v1", "Pod", "a", "db", object{"spec": object{"restartPolicy": "Never", "containers": []any{object{"name": "main", "image": "i"}},
		"initContainers": []any{object{"name": "agent", "image": "i", "restartPolicy": "Always"}, object{"name": "setup", "image": "i"}, object{"name": "gone", "image": "i"}}}})
	ended := object{"terminated": object{"exitCode": 0.0}}
	n.look = func(_ string, seen int) {
		agent := ended
		if seen > 2 {
			agent = object{"running": object{}}
		}
		n.cluster.Change(path, func(pod map[string]any) {
			pod["spec"].(map[string]any)["ephemeralContainers"] = []any{object{"name": "debugger"}, object{"name": "left"}}
			pod["status"] = object{"phase": "Running", "containerStatuses": []any{object{"name": "main", "state": object{"waiting": object{}}}},
				"initContainerStatuses": []any{object{"name": "agent", "state": agent}, object{"name": "setup", "state": object{"running": object{}}}, object{"name": "gone", "state": ended}},
				"ephemeralContainerStatuses": []any{
					object{"name": "debugger", "state": object{"running": object{}}},
					object{"name": "left", "state": object{"terminated": object{"exitCode": 1.0}}}}}
		})
	}
	f := runRestore(t, n.cluster, b, specOf(specHooks("", execHook("setup", "one"), execHook("agent", "two"), execHook("debugger", "three"),
		execHook("gone", "four"), execHook("left", "five"))), n.setExec)
	require.ElementsMatch(t, []string{"a/db setup one", "a/db agent two", "a/db debugger three"}, n.ranCommands())
	require.Empty(t, f.results.Errors.allMessages())
	require.Contains(t, f.results.Warnings.allMessages(), `hook ["four"] in container gone (spec.hooks.resources[0].postHooks[3].exec) failed: it did not run: the container has ended with exit code 0`)
	require.Contains(t, f.results.Warnings.allMessages(), `hook ["five"] in container left (spec.hooks.resources[0].postHooks[4].exec) failed: it did not run: the container has ended with exit code 1`)
	require.Equal(t, 2, f.recorder.Counts().HooksFailed)
}

// A hook without a wait timeout, in a Pod that never starts, held the restore and its place in the
// queue for good.
func TestHooksWithoutAWaitTimeoutEndWithThatOfTheRestore(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations object
		field       string
	}{
		"spec":        {nil, "(spec.hooks.resources[0].postHooks[0].exec)"},
		"annotations": {object{postHook + "command": "never", postHook + "container": "main", postHook + "on-error": "Fail"}, "(annotation " + postHook + "command)"},
	} {
		t.Run(name, func(t *testing.T) {
			n, b := newNode(t), &backup{}
			b.addPod("a", "db", tt.annotations)
			n.look = func(path string, _ int) { n.setStatus(path, object{"phase": "Pending"}) }
			spec := specOf(specHooks("", failingHook(execHook("main", "never"))))
			spec.ItemOperationTimeout.Duration = time.Millisecond
			f := runRestore(t, n.cluster, b, spec, n.setExec)
			require.Empty(t, n.ranCommands())
			errs := f.results.Errors.allMessages()
			require.Contains(t, errs, `pods a/db: hook ["never"] in container main `+tt.field+` failed: it did not run: its container could not be used within 1ms: `)
			require.Equal(t, 1, f.recorder.Counts().HooksFailed)
		})
	}
}

// later is a clock that is set forward.
type later struct {
	clock.RealClock
	by atomic.Int64
}

func (c *later) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.by.Load())) }

// Hooks that run longer than the default wait left out those behind them, which Velero runs. A
// waitTimeout counts them.
func TestADefaultWaitDoesNotCountTheHooksBefore(t *testing.T) {
	n, b, clk := newNode(t), &backup{}, &later{}
	b.addPod("a", "db", nil)
	n.look = func(path string, seen int) {
		if seen < 4 {
			n.startContainers(path, "main")
			return
		}
		n.startContainers(path, "main", "side") // which could not be used when the hooks in main had run
	}
	n.calls = func(string) { clk.by.Add(int64(5 * time.Hour)) }
	spec := specOf(specHooks("", execHook("main", "one"), hookWithin(execHook("main", "never"), time.Hour), execHook("main", "two"), execHook("side", "three")))
	f := runAt(t, clk, n.cluster, b, spec, n.setExec)
	require.Equal(t, []string{"a/db main one", "a/db main two", "a/db side three"}, n.ranCommands())
	require.Contains(t, f.results.Warnings.allMessages(), `hook ["never"] in container main (spec.hooks.resources[0].postHooks[1].exec) failed: it did not run: hooks before it took longer than its 1h0m0s`)
	require.Equal(t, 1, f.recorder.Counts().HooksFailed)
}

// Annotations that cannot be used are an error of the Pod; the spec's hooks do not run in their
// place.
func TestAnnotationsThatCannotBeUsed(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", object{postHook + "command": "x", postHook + "wait-timeout": "soon"})
	f := runRestore(t, n.cluster, b, specOf(specHooks("", execHook("", "never"))), n.setExec)
	require.Empty(t, n.ranCommands())
	require.Contains(t, f.results.Errors.allMessages(), "no hook is run in it: annotation "+postHook+`wait-timeout: "soon"`)
	c := f.recorder.Counts()
	require.Equal(t, []int{1, 1, 1}, []int{c.Hooks, c.HooksFailed, c.Errors})
}

// Annotations in the domain of restore hooks that no hook has are warnings about Pods that the restore
// creates; those of backups are not its concern.
func TestUnknownHookAnnotationsAreWarnings(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", object{postHook + "command": "x", postHook + "timeout": "5m", "pre.hook.backup.velero.io/onerror": "Continue"})
	spec := velerov1.RestoreSpec{}
	f := runRestore(t, n.cluster, b, spec, n.setExec)
	require.Equal(t, "pods a/db: annotation "+postHook+"timeout is ignored, hooks do not have it: use "+postHook+"exec-timeout", f.results.Warnings.allMessages())
	require.Equal(t, []string{"a/db main x"}, n.ranCommands())
	f = runRestore(t, n.cluster, b, spec, n.setExec)
	require.Empty(t, f.results.Warnings.allMessages(), "the Pod was there before, its hooks do not run")
}

// Hooks of more Pods than are looked at in a tick, whose containers start at different times.
func TestHooksOfManyPods(t *testing.T) {
	n, b := newNode(t), &backup{}
	for i := range 40 {
		b.addPod("a", "p"+string(rune('a'+i/26))+string(rune('a'+i%26)), nil)
	}
	n.look = func(path string, seen int) {
		if seen > int(path[len(path)-1])%3 {
			n.startContainers(path, "main", "side")
		}
	}
	f := runRestore(t, n.cluster, b, specOf(specHooks("", execHook("main", "one"), execHook("side", "two"))), n.setExec)
	require.Len(t, n.ranCommands(), 80)
	require.Equal(t, 1, n.most)
	require.Empty(t, f.results.Warnings.allMessages())
}

// A Pod that is waited for is shown, with what it waits for.
func TestAHookShowsWhatItWaitsFor(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", nil)
	var started atomic.Bool
	n.look = func(path string, _ int) {
		n.setStatus(path, object{"phase": "Pending", "containerStatuses": []any{object{"name": "main", "state": object{"waiting": object{"reason": "ImagePullBackOff"}}}}})
		if started.Load() {
			n.startContainers(path, "main")
		}
	}
	shown := onceShown(t, "pods a/db: hooks wait for container main: it waits: ImagePullBackOff", func() { started.Store(true) })
	runRestore(t, n.cluster, b, specOf(specHooks("", execHook("main", "one"))), n.setExec, shown)
	require.Equal(t, []string{"a/db main one"}, n.ranCommands())
}

// Restores that wait for hours held the plans of their backups in memory.
func TestThePlanIsReleasedWhileHooksWait(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", nil)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	var released atomic.Bool
	deadline := time.Now().Add(20 * time.Second)
	n.look = func(path string, _ int) {
		runtime.GC()
		if released.Load() || time.Now().After(deadline) {
			n.startContainers(path, "main")
		}
	}
	f := runRestore(t, n.cluster, b, specOf(specHooks("", failingHook(execHook("main", "one")), execHook("absent", "two"))), n.setExec, func(c *restore.Config) {
		runtime.AddCleanup(c.Plan, func(int) { released.Store(true) }, 0)
	})
	require.True(t, released.Load())
	require.Equal(t, []string{"a/db main one"}, n.ranCommands())
	require.Equal(t, []string{"a/c(created)"}, f.list["v1/ConfigMap"])
	require.Contains(t, f.results.Warnings.allMessages(), "pods a/db: ")
}

// Without a writable bucket it is not known whether an earlier holder ran the hooks of an existing
// Pod.
func TestWithoutRecordsNoHookIsRunTwice(t *testing.T) {
	n, b := newNode(t), &backup{}
	b.addPod("a", "db", nil)
	spec := specOf(specHooks("", failingHook(execHook("main", "one"))))
	runRestore(t, n.cluster, b, spec, n.setExec)
	blind := func(c *restore.Config) { c.History = &outcome.History{Resumed: true, NoHistory: true} }
	f := runRestore(t, n.cluster, b, spec, n.setExec, blind)
	require.Equal(t, []string{"a/db main one"}, n.ranCommands())
	require.Contains(t, f.results.Errors.allMessages(), "which is not run again: how it ended is not known")

	n.cluster.Delete("/api/v1/namespaces/a/pods/db")
	runRestore(t, n.cluster, b, spec, n.setExec, blind)
	require.Len(t, n.ranCommands(), 2, "a Pod that this holder created")
}
