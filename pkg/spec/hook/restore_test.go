package hook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
)

func initHook(containers ...string) velerov1.RestoreResourceHook {
	h := velerov1.RestoreResourceHook{Init: &velerov1.InitRestoreHook{}}
	for _, text := range containers {
		h.Init.InitContainers = append(h.Init.InitContainers, runtime.RawExtension{Raw: []byte(text)})
	}
	return h
}

func TestInitContainersOfTheSpecAndOfAnnotations(t *testing.T) {
	hooks := &velerov1.RestoreHooks{Resources: []velerov1.RestoreResourceHookSpec{
		{Name: "a", IncludedNamespaces: []string{"a"}, PostHooks: []velerov1.RestoreResourceHook{initHook(`{"name":"first","image":"i","command":["x"],"new":1}`)}},
		{Name: "not a", ExcludedNamespaces: []string{"a"}, PostHooks: []velerov1.RestoreResourceHook{initHook(`{"name":"other","image":"i","command":["x"]}`)}},
		{Name: "labelled", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			PostHooks: []velerov1.RestoreResourceHook{initHook(`{"name":"second","image":"i","command":["x"]}`)}},
	}}
	require.Empty(t, hook.CheckRestore(hooks))
	got, err := hook.InitContainers(hooks, &hook.Pod{Namespace: "a", Labels: labels.Set{"app": "db"}}, "p")
	require.NoError(t, err)
	require.Equal(t, []map[string]any{
		{"name": "first", "image": "i", "command": []any{"x"}, "new": 1.0}, {"name": "second", "image": "i", "command": []any{"x"}}}, got)

	annotated := labels.Set{"init.hook.restore.velero.io/container-image": "busybox", "init.hook.restore.velero.io/command": `["sh","-c","x"]`}
	got, err = hook.InitContainers(hooks, &hook.Pod{Namespace: "a", Annotations: annotated}, "p")
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Regexp(t, "^velero-restore-init-[0-9a-f]{8}$", got[0]["name"])
	again, err := hook.InitContainers(hooks, &hook.Pod{Namespace: "a", Annotations: annotated}, "p")
	require.NoError(t, err)
	require.Equal(t, got, again, "a runner that takes over makes the same")
	require.Equal(t, []any{"sh", "-c", "x"}, got[0]["command"])

	for _, bad := range []labels.Set{
		{"init.hook.restore.velero.io/container-image": "busybox"},
		{"init.hook.restore.velero.io/command": "x"},
		{"init.hook.restore.velero.io/container-image": "i", "init.hook.restore.velero.io/command": "[1]"},
		{"init.hook.restore.velero.io/container-image": "i", "init.hook.restore.velero.io/command": "x", "init.hook.restore.velero.io/timeout": "soon"},
	} {
		_, err := hook.InitContainers(hooks, &hook.Pod{Annotations: bad}, "p")
		require.ErrorContains(t, err, "annotation init.hook.restore.velero.io/")
	}
}

func execHook(e velerov1.ExecRestoreHook) velerov1.RestoreResourceHook {
	return velerov1.RestoreResourceHook{Exec: &e}
}

func TestCommandsOfTheSpecInARestoredPod(t *testing.T) {
	hooks := &velerov1.RestoreHooks{Resources: []velerov1.RestoreResourceHookSpec{
		{Name: "a", IncludedNamespaces: []string{"a*"}, IncludedResources: []string{"pods"}, PostHooks: []velerov1.RestoreResourceHook{
			execHook(velerov1.ExecRestoreHook{Container: "main", Command: []string{"first", "x"}, OnError: velerov1.HookErrorModeFail,
				ExecTimeout: metav1.Duration{Duration: time.Minute}, WaitTimeout: metav1.Duration{Duration: time.Hour}, WaitForReady: ptr.To(true)}),
			initHook(`{"name":"n","image":"i","command":["x"]}`),
			execHook(velerov1.ExecRestoreHook{Command: []string{"second"}, OnError: velerov1.HookErrorModeContinue}),
		}},
		{Name: "not a", ExcludedNamespaces: []string{"a"}, PostHooks: []velerov1.RestoreResourceHook{execHook(velerov1.ExecRestoreHook{Command: []string{"other"}})}},
		{Name: "labelled", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			PostHooks: []velerov1.RestoreResourceHook{execHook(velerov1.ExecRestoreHook{Command: []string{"third"}})}},
	}}
	require.Empty(t, hook.CheckRestore(hooks))
	got, err := hook.OfRestored(hooks, &hook.Pod{Namespace: "a", Labels: labels.Set{"app": "db"}})
	require.NoError(t, err)
	require.Equal(t, []hook.Restored{
		{Exec: hook.Exec{Field: "spec.hooks.resources[0].postHooks[0].exec", Container: "main", Command: []string{"first", "x"}, Fail: true, Timeout: time.Minute}, Wait: time.Hour, Ready: true},
		{Exec: hook.Exec{Field: "spec.hooks.resources[0].postHooks[2].exec", Command: []string{"second"}, Timeout: hook.DefaultTimeout}},
		{Exec: hook.Exec{Field: "spec.hooks.resources[2].postHooks[0].exec", Command: []string{"third"}, Timeout: hook.DefaultTimeout}},
	}, got)
}

func TestTheAnnotationsOfARestoredPodTakeThePlaceOfTheSpec(t *testing.T) {
	hooks := &velerov1.RestoreHooks{Resources: []velerov1.RestoreResourceHookSpec{
		{Name: "all", PostHooks: []velerov1.RestoreResourceHook{execHook(velerov1.ExecRestoreHook{Command: []string{"x"}})}}}}
	const prefix = "post.hook.restore.velero.io/"
	got, err := hook.OfRestored(hooks, &hook.Pod{Annotations: labels.Set{prefix + "command": `["psql", "-f"]`, prefix + "container": "db",
		prefix + "on-error": "Fail", prefix + "exec-timeout": "45s", prefix + "wait-timeout": "5m", prefix + "wait-for-ready": "true"}})
	require.NoError(t, err)
	require.Equal(t, []hook.Restored{{Exec: hook.Exec{Field: "annotation " + prefix + "command", Container: "db", Command: []string{"psql", "-f"}, Fail: true,
		Timeout: 45 * time.Second}, Wait: 5 * time.Minute, Ready: true}}, got)

	got, err = hook.OfRestored(hooks, &hook.Pod{Annotations: labels.Set{prefix + "command": "date", prefix + "wait-for-ready": "yes"}})
	require.NoError(t, err)
	require.Equal(t, []hook.Restored{{Exec: hook.Exec{Field: "annotation " + prefix + "command", Command: []string{"date"}, Timeout: hook.DefaultTimeout}}}, got)

	for key, value := range map[string]string{"command": `[]`, "on-error": "Ignore", "exec-timeout": "soon", "wait-timeout": "-1s"} {
		set := labels.Set{prefix + "command": "date"}
		set[prefix+key] = value
		_, err := hook.OfRestored(hooks, &hook.Pod{Annotations: set})
		require.ErrorContains(t, err, "annotation "+prefix+key, key)
	}
	_, err = hook.OfRestored(hooks, &hook.Pod{Annotations: labels.Set{prefix + "wait-for-ready": "true"}})
	require.ErrorContains(t, err, prefix+"command beside it")
}

func TestABadSpecOfARestoreIsNamed(t *testing.T) {
	command := []string{"x"}
	for field, h := range map[string]velerov1.RestoreResourceHook{
		"spec.hooks.resources[0].postHooks[0]":                        {},
		"spec.hooks.resources[0].postHooks[0].exec.command":           execHook(velerov1.ExecRestoreHook{}),
		"spec.hooks.resources[0].postHooks[0].exec.container":         execHook(velerov1.ExecRestoreHook{Command: command, Container: "a/b"}),
		"spec.hooks.resources[0].postHooks[0].exec.onError":           execHook(velerov1.ExecRestoreHook{Command: command, OnError: "Ignore"}),
		"spec.hooks.resources[0].postHooks[0].exec.execTimeout":       execHook(velerov1.ExecRestoreHook{Command: command, ExecTimeout: metav1.Duration{Duration: -1}}),
		"spec.hooks.resources[0].postHooks[0].exec.waitTimeout":       execHook(velerov1.ExecRestoreHook{Command: command, WaitTimeout: metav1.Duration{Duration: -1}}),
		"spec.hooks.resources[0].postHooks[0].init.initContainers":    initHook(),
		"spec.hooks.resources[0].postHooks[0].init.initContainers[0]": initHook(`{"name":"x","image":"i"}`),
	} {
		problems := hook.CheckRestore(&velerov1.RestoreHooks{Resources: []velerov1.RestoreResourceHookSpec{{PostHooks: []velerov1.RestoreResourceHook{h}}}})
		require.Len(t, problems, 1, field)
		require.Equal(t, field, problems[0].Field)
	}
}
