package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
)

// applications are Pods that can be frozen and thawed. Other commands succeed, but for "fail".
type applications struct {
	mu     sync.Mutex
	frozen map[string]bool
	ran    []string // "pod container command"
	// before, if not nil, is called before a command.
	before func(ctx context.Context, pod, command string) error
}

var _ podhook.Executor = (*applications)(nil)

func (a *applications) Run(ctx context.Context, cmd *podexec.Command) (podexec.Output, error) {
	if a.before != nil {
		if err := a.before(ctx, cmd.Pod, cmd.Args[0]); err != nil {
			return podexec.Output{}, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.frozen == nil {
		a.frozen = map[string]bool{}
	}
	a.ran = append(a.ran, cmd.Pod+" "+cmd.Container+" "+strings.Join(cmd.Args, " "))
	switch cmd.Args[0] {
	case "freeze":
		a.frozen[cmd.Pod] = true
	case "thaw":
		delete(a.frozen, cmd.Pod)
	case "fail":
		return podexec.Output{Stderr: "disk on fire"}, errors.New("command terminated with exit code 1")
	}
	return podexec.Output{Stdout: cmd.Args[0] + " done"}, nil
}

func (a *applications) ranCommands() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.ran))
}

func (a *applications) countFrozen() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.frozen)
}

func (a *applications) isFrozen(pod string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.frozen[pod]
}

// newPod is a running Pod that mounts claims.
func newPod(name string, annotations map[string]string, claims ...string) kubetest.Object {
	volumes := []any{}
	for _, claim := range claims {
		volumes = append(volumes, map[string]any{"name": claim, "persistentVolumeClaim": map[string]any{"claimName": claim}})
	}
	return kubetest.Object{Namespace: "a", Name: name, Labels: map[string]string{"app": "x"}, Annotations: annotations, Body: map[string]any{
		"spec":   map[string]any{"containers": []any{map[string]any{"name": "main"}, map[string]any{"name": "side"}}, "volumes": volumes},
		"status": map[string]any{"phase": "Running"},
	}}
}

// hookAnnotations are the annotations that freeze and thaw.
func hookAnnotations(more ...string) map[string]string {
	out := map[string]string{"pre.hook.backup.velero.io/command": "freeze", "post.hook.backup.velero.io/command": "thaw"}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

// withHooks gives the setup hooks.
func (s *setup) withHooks(t *testing.T, apps *applications) *setup {
	t.Helper()
	set, err := hook.NewBackup(&s.job.Backup.Spec.Hooks, s.job.Catalog)
	require.NoError(t, err)
	s.job.Hooks, s.job.Exec = set, apps
	return s
}

// endedHooks sums up the hooks that have ended by the records.
func (s stored) endedHooks() (pods, attempted, failed int) {
	for i := range s.records {
		for _, e := range s.records[i].HooksEnded {
			pods, attempted, failed = pods+1, attempted+e.Attempted, failed+e.Failed
		}
	}
	return pods, attempted, failed
}

// watchingAction returns an action that requires that the Pods which a Pod or claim belongs to are frozen.
func watchingAction(apps *applications, users func(id action.Identity) []string) *fakeAction {
	return &fakeAction{name: "a.io/watch", selector: selectResources("pods", "persistentvolumeclaims"), do: func(_ context.Context, id action.Identity, _ *action.Object) (action.BackupResult, error) {
		for _, name := range users(id) {
			if !apps.isFrozen(name) {
				return action.BackupResult{}, fmt.Errorf("%s is not frozen", name)
			}
		}
		return action.BackupResult{}, nil
	}}
}

// Pods that share a claim are in one block with it: what actions do with the claim is done while
// both are frozen, whichever object comes first, and whichever action names the claim.
func TestActionsRunBetweenHooks(t *testing.T) {
	for _, workers := range []int{1, 4} {
		api := newEstateServer()
		api.Add("pods", newPod("db-0", hookAnnotations(), "own", "shared"), newPod("db-1", hookAnnotations(), "shared"), newPod("plain", nil, "shared"))
		api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "a", Name: "own"}, kubetest.Object{Namespace: "a", Name: "shared"}, kubetest.Object{Namespace: "a", Name: "free"})
		apps := &applications{}
		watch := watchingAction(apps, func(id action.Identity) []string {
			return map[string][]string{"db-0": {"db-0"}, "db-1": {"db-1"}, "own": {"db-0"}, "shared": {"db-0", "db-1"}}[id.Name]
		})
		ask := additionalAction("b.io/ask", selectResources("configmaps"), false, func(action.Identity) []string {
			return []string{"persistentvolumeclaims a/shared"}
		})
		s := newSetup(t, api, velerov1.BackupSpec{}).addActions(ask, watch).withHooks(t, apps)
		s.cfg.BlockWorkers = workers
		res, got := s.runJob(t)
		require.Zero(t, res.Errors, got.notesAt(joblog.Error))
		require.Equal(t, 6, watch.calledOnceEach(t))
		require.Equal(t, 3, got.countOf("pods"))
		require.Equal(t, 3, got.countOf("persistentvolumeclaims"))
		require.Equal(t, []string{"db-0 main freeze", "db-0 main thaw", "db-1 main freeze", "db-1 main thaw"}, apps.ranCommands())
		require.Empty(t, apps.frozen)
		pods, attempted, failed := got.endedHooks()
		require.Equal(t, []int{2, 4, 0}, []int{pods, attempted, failed})
		require.Contains(t, strings.Join(got.notesAt(joblog.Info), "\n"), `pods a/db-0: pre hook ["freeze"] ran in container main (annotation pre.hook.backup.velero.io/command), stdout: freeze done`)
	}
}

// A claim that the filters do not select is backed up with the first Pod whose action names it. A
// Pod without hooks is processed between the hooks of those with some, also where these are not
// stored.
func TestAnUnselectedClaimIsBackedUpBetweenHooks(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"stored":     hookAnnotations(),
		"not stored": hookAnnotations("pre.hook.backup.velero.io/command", "fail", "pre.hook.backup.velero.io/on-error", "Fail"),
	} {
		t.Run(name, func(t *testing.T) {
			api := newEstateServer()
			api.Add("pods", newPod("db", annotations, "shared"), newPod("plain", nil, "shared"), newPod("zero", nil))
			api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "a", Name: "shared"})
			others := make(chan struct{}) // closed once all Pods that wait for no hook were processed
			apps := &applications{before: func(ctx context.Context, _, command string) error {
				if command != "thaw" {
					select {
					case <-others:
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				return nil
			}}
			var thawed atomic.Int32
			watch := &fakeAction{name: "a.io/watch", selector: selectResources("persistentvolumeclaims"), do: func(context.Context, action.Identity, *action.Object) (action.BackupResult, error) {
				if len(apps.ranCommands()) != 1 { // the pre hook
					thawed.Add(1)
				}
				return action.BackupResult{}, nil
			}}
			claims := additionalAction("velero.io/pod", selectResources("pods"), false, func(id action.Identity) []string {
				if id.Name == "zero" {
					close(others)
					return nil
				}
				return []string{"persistentvolumeclaims a/shared"}
			})
			spec := velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}
			_, got := newSetup(t, api, spec).addActions(claims, watch).withHooks(t, apps).runJob(t)
			require.Equal(t, 1, watch.calledOnceEach(t))
			require.Zero(t, thawed.Load(), "it was not between the hooks")
			require.Equal(t, 1, got.countOf("persistentvolumeclaims"))
			require.Len(t, apps.ranCommands(), 2)
		})
	}
}

func TestHooksThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		annotations       map[string]string
		stored            bool
		errors            string
		ran               []string
		attempted, failed int
	}{
		"continue": {hookAnnotations("pre.hook.backup.velero.io/command", "fail"), true, "pre hook failed", []string{"p main fail", "p main thaw"}, 2, 1},
		"fail": {hookAnnotations("pre.hook.backup.velero.io/command", "fail", "pre.hook.backup.velero.io/on-error", "Fail"), false,
			"a pre hook failed: the object is not backed up", []string{"p main fail", "p main thaw"}, 2, 1},
		"post":      {hookAnnotations("post.hook.backup.velero.io/command", "fail"), true, "post hook failed", []string{"p main fail", "p main freeze"}, 2, 1},
		"container": {hookAnnotations("pre.hook.backup.velero.io/container", "none"), true, "pre hook failed", []string{"p main thaw"}, 2, 1},
		"timeout":   {hookAnnotations("pre.hook.backup.velero.io/timeout", "soon", "pre.hook.backup.velero.io/container", "side"), true, "no hook was run: an annotation cannot be used", nil, 2, 2},
		"late":      {hookAnnotations("pre.hook.backup.velero.io/command", "sleep", "pre.hook.backup.velero.io/timeout", "20ms"), true, "pre hook failed", []string{"p main thaw"}, 2, 1},
		"unusable and fail": {hookAnnotations("pre.hook.backup.velero.io/timeout", "soon", "pre.hook.backup.velero.io/on-error", "Fail"), false,
			"a pre hook failed: the object is not backed up", nil, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			api := newEstateServer()
			api.Add("pods", newPod("p", c.annotations), newPod("q", nil))
			apps := &applications{before: func(ctx context.Context, _, command string) error {
				if command != "sleep" {
					return nil
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}}
			s := newSetup(t, api, velerov1.BackupSpec{}).withHooks(t, apps)
			res, got := s.runJob(t)
			require.Equal(t, 1, res.Errors)
			require.Equal(t, []string{"pods a/p: " + c.errors}, truncateLike(got.notesAt(joblog.Error), "pods a/p: "+c.errors))
			require.Equal(t, c.ran, apps.ranCommands())
			require.Equal(t, map[bool]int{true: 2, false: 1}[c.stored], got.countOf("pods"))
			pods, attempted, failed := got.endedHooks()
			require.Equal(t, []int{1, c.attempted, c.failed}, []int{pods, attempted, failed})
		})
	}
}

// The API server runs commands in sidecars, other init containers and ephemeral containers, too.
func TestHooksInContainersOfEveryKind(t *testing.T) {
	api := newEstateServer()
	pod := newPod("p", hookAnnotations("pre.hook.backup.velero.io/container", "agent", "post.hook.backup.velero.io/container", "debugger"))
	spec := pod.Body["spec"].(map[string]any)
	spec["initContainers"] = []any{map[string]any{"name": "agent", "restartPolicy": "Always"}}
	spec["ephemeralContainers"] = []any{map[string]any{"name": "debugger"}}
	api.Add("pods", pod)
	apps := &applications{}
	res, _ := newSetup(t, api, velerov1.BackupSpec{}).withHooks(t, apps).runJob(t)
	require.Zero(t, res.Errors)
	require.Equal(t, []string{"p agent freeze", "p debugger thaw"}, apps.ranCommands())
}

// Annotations in the domain of hooks that no hook has are warnings, those for a restore too, and about Pods
// without hooks too: the backup is when they can still be changed.
func TestUnknownHookAnnotationsAreWarnings(t *testing.T) {
	api := newEstateServer()
	api.Add("pods", newPod("p", hookAnnotations("pre.hook.backup.velero.io/exec-timeout", "300s")),
		newPod("q", map[string]string{"post.hook.restore.velero.io/command": "x", "post.hook.restore.velero.io/timeout": "300s"}))
	res, got := newSetup(t, api, velerov1.BackupSpec{}).withHooks(t, &applications{}).runJob(t)
	require.Zero(t, res.Errors)
	require.Equal(t, 2, res.Warnings)
	require.ElementsMatch(t, []string{
		"pods a/p: annotation pre.hook.backup.velero.io/exec-timeout is ignored, hooks do not have it: use pre.hook.backup.velero.io/timeout",
		"pods a/q: annotation post.hook.restore.velero.io/timeout is ignored, hooks do not have it: use post.hook.restore.velero.io/exec-timeout",
	}, got.notesAt(joblog.Warning))
}

// No more Pods are between their hooks than there are workers: with one, each is thawed before the next
// is frozen, and its claim is cut in between.
func TestAsManyPodsAreFrozenAsThereAreWorkers(t *testing.T) {
	for workers, pods := range map[int]int{1: 3, 2: 5} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			api := newEstateServer()
			for i := range pods {
				name := fmt.Sprintf("db-%d", i)
				api.Add("pods", newPod(name, hookAnnotations(), name))
				api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "a", Name: name})
			}
			apps := &applications{}
			var most atomic.Int32
			apps.before = func(_ context.Context, _, command string) error {
				if frozen := int32(apps.countFrozen()); command == "freeze" && frozen >= most.Load() {
					most.Store(frozen + 1)
				}
				return nil
			}
			cut := &fakeAction{name: "a.io/cut", selector: selectResources("persistentvolumeclaims"), do: func(_ context.Context, id action.Identity, _ *action.Object) (action.BackupResult, error) {
				if !apps.isFrozen(id.Name) {
					return action.BackupResult{}, fmt.Errorf("%s is not frozen", id.Name)
				}
				return action.BackupResult{}, nil
			}}
			s := newSetup(t, api, velerov1.BackupSpec{}).addActions(cut).withHooks(t, apps)
			s.cfg.BlockWorkers = workers
			res, got := s.runJob(t)
			require.Zero(t, res.Errors, got.notesAt(joblog.Error))
			require.Equal(t, pods, cut.calledOnceEach(t), "one cut for each claim")
			require.Len(t, apps.ranCommands(), 2*pods)
			require.Empty(t, apps.frozen)
			require.LessOrEqual(t, int(most.Load()), workers)
		})
	}
}

// The record of a post hook names the container in its definition, also one that the Pod does not
// have: a later holder does not run it in another.
func TestTheRecordKeepsTheContainerOfAPostHook(t *testing.T) {
	api := newEstateServer()
	api.Add("pods", newPod("p", hookAnnotations("post.hook.backup.velero.io/container", "none")), newPod("q", hookAnnotations()))
	s := newSetup(t, api, velerov1.BackupSpec{}).withHooks(t, &applications{})
	s.runJob(t)
	var keys []string
	for _, key := range s.store.Keys() {
		if strings.HasPrefix(key, layout.CheckpointPrefix("b1", "uid-1")) {
			keys = append(keys, key)
		}
	}
	containers := map[string]string{}
	require.NoError(t, checkpoint.Each(t.Context(), s.store, "b1", "uid-1", keys, func(_ string, rec *checkpoint.Record) error {
		for _, h := range rec.Hooked {
			containers[h.Object.Name] = h.Post[0].Container
		}
		return nil
	}))
	require.Equal(t, map[string]string{"p": "none", "q": "main"}, containers)
}

// truncateLike cuts texts at the length of another.
func truncateLike(texts []string, like string) (out []string) {
	for _, text := range texts {
		out = append(out, text[:min(len(text), len(like))])
	}
	return out
}

// The hook of one Pod delays no block without hooks, and with several workers none with hooks either.
func TestASlowHookDelaysItsOwnBlock(t *testing.T) {
	for workers, others := range map[int]int{1: 300, 2: 300 + 19} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) { slowHook(t, workers, others) })
	}
}

// slowHook runs a hook that ends once so many other objects were processed.
func slowHook(t *testing.T, workers, processed int) {
	t.Helper()
	api := newEstateServer()
	for i := range 20 {
		api.Add("pods", newPod(fmt.Sprintf("p-%02d", i), hookAnnotations()))
	}
	others := make(chan struct{})
	trace := tracingAction("b.io/trace", selectResources("pods", "configmaps"))
	do := trace.do
	var mu sync.Mutex
	seen := 0
	trace.do = func(ctx context.Context, id action.Identity, o *action.Object) (action.BackupResult, error) {
		mu.Lock()
		if seen++; seen == processed {
			close(others)
		}
		mu.Unlock()
		return do(ctx, id, o)
	}
	apps := &applications{before: func(ctx context.Context, pod, command string) error {
		if pod != "p-00" || command != "freeze" {
			return nil
		}
		select {
		case <-others:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	s := newSetup(t, api, velerov1.BackupSpec{}).addActions(trace).withHooks(t, apps)
	s.cfg.BlockWorkers = workers
	res, got := s.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Equal(t, 20, got.countOf("pods"))
	require.Len(t, apps.ranCommands(), 40)
}

func TestHooksOfTheSpec(t *testing.T) {
	api := newEstateServer()
	done := newPod("done", nil)
	done.Body["status"] = map[string]any{"phase": "Succeeded"}
	api.Add("pods", newPod("p", nil), newPod("q", hookAnnotations()), done)
	spec := velerov1.BackupSpec{Hooks: velerov1.BackupHooks{Resources: []velerov1.BackupResourceHookSpec{{
		Name: "s", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
		PreHooks:  []velerov1.BackupResourceHook{{Exec: &velerov1.ExecHook{Container: "side", Command: []string{"sync", "-f"}}}, {Exec: &velerov1.ExecHook{Command: []string{"freeze"}}}},
		PostHooks: []velerov1.BackupResourceHook{{Exec: &velerov1.ExecHook{Command: []string{"thaw"}}}},
	}}}}
	apps := &applications{}
	_, got := newSetup(t, api, spec).withHooks(t, apps).runJob(t)
	require.Equal(t, []string{"p main freeze", "p main thaw", "p side sync -f", "q main freeze", "q main thaw"}, apps.ranCommands())
	require.Equal(t, 3, got.countOf("pods"))
}

// Whichever write a holder dies at, the next one ends every hook: no pre hook runs twice, each post
// hook runs after it, and what was stored and counted is as without a death, but for a hook in
// flight.
func TestHooksOfAHolderThatDies(t *testing.T) {
	server := func() *kubetest.Server {
		api := kubetest.New(kinds...)
		api.Add("namespaces", kubetest.Object{Name: "a"})
		api.Add("pods", newPod("p", hookAnnotations()), newPod("q", hookAnnotations("pre.hook.backup.velero.io/on-error", "Fail")), newPod("r", nil))
		return api
	}
	taken := 0
	for n, died := 1, true; died; n++ {
		apps := &applications{}
		s := newSetup(t, server(), velerov1.BackupSpec{}).withHooks(t, apps)
		s.cfg.PartItems, s.cfg.Workers = 2, 1
		dead := dieAt(s.store, n)
		_, err := Run(t.Context(), s.cfg, s.job)
		if died = dead(); !died {
			require.NoError(t, err)
			break
		}
		require.Error(t, err)
		before := apps.ranCommands()
		frozen := maps.Clone(apps.frozen)
		s.store.Inject(nil)
		next := s.nextOwner(t, 2)
		res, got := next.runJob(t)
		count := map[string]int{}
		for _, command := range apps.ranCommands() {
			count[command]++
		}
		unclear := strings.Join(got.notesAt(joblog.Error), "\n")
		for _, name := range []string{"p", "q"} {
			require.LessOrEqual(t, count[name+" main freeze"], 1, "write %d, before %v", n, before)
			require.GreaterOrEqual(t, count[name+" main thaw"], 1, "write %d, before %v", n, before)
			if count[name+" main freeze"] == 0 {
				require.Contains(t, unclear, "pods a/"+name, "write %d", n)
			}
		}
		if len(frozen) > 0 {
			taken++
		}
		require.Empty(t, apps.frozen, "write %d: frozen before: %v", n, frozen)
		pods, attempted, _ := got.endedHooks()
		require.Equal(t, []int{2, 4}, []int{pods, attempted}, "write %d", n)
		if res.Errors == 0 {
			require.Equal(t, 3, got.countOf("pods"))
		}
	}
	require.Positive(t, taken, "some died between the hooks")
}

// The native snapshot of a volume is taken while every Pod that has it is frozen, also where the
// volume itself is not listed yet.
func TestSnapshotsAreTakenBetweenHooks(t *testing.T) {
	for _, labels := range []bool{false, true} {
		api := newDiskServer()
		api.Add("pods", newPod("db-0", hookAnnotations(), "good"), newPod("db-1", hookAnnotations(), "good"))
		apps := &applications{}
		c := &cloud{knows: hasNativeSnapshot}
		var mu sync.Mutex
		frozen := map[string]bool{}
		c.before = func(id string) {
			both := apps.isFrozen("db-0") && apps.isFrozen("db-1")
			mu.Lock()
			defer mu.Unlock()
			frozen[id] = both
		}
		spec := velerov1.BackupSpec{}
		if labels {
			spec.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
		}
		claims := additionalAction("velero.io/pod", selectResources("pods"), false, func(action.Identity) []string { return []string{"persistentvolumeclaims a/good"} })
		s := newSetup(t, api, spec).addActions(claims).withSnapshots(c, "main").withHooks(t, apps)
		_, got := s.runJob(t)
		require.True(t, frozen["disk-pv-good"])
		require.Empty(t, apps.frozen)
		infos, snapshots := decidedVolumes(t, got)
		require.Equal(t, "snap-disk-pv-good", snapshots["pv-good"].Status.ProviderSnapshotID)
		require.Equal(t, "succeeded", infos["pv-good"].Result)
		require.Equal(t, 1, c.taken["disk-pv-good"])
		if !labels {
			require.Equal(t, 1, c.taken["disk-pv-full"], "the others are taken at the end")
			require.False(t, frozen["disk-pv-full"])
		}
	}
}
