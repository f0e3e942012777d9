package hook_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

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

func TestABadSpecOfARestoreIsNamed(t *testing.T) {
	for field, h := range map[string]velerov1.RestoreResourceHook{
		"spec.hooks.resources[0].postHooks[0]":                        {},
		"spec.hooks.resources[0].postHooks[0].exec":                   {Exec: &velerov1.ExecRestoreHook{Command: []string{"x"}}},
		"spec.hooks.resources[0].postHooks[0].init.initContainers":    initHook(),
		"spec.hooks.resources[0].postHooks[0].init.initContainers[0]": initHook(`{"name":"x","image":"i"}`),
	} {
		problems := hook.CheckRestore(&velerov1.RestoreHooks{Resources: []velerov1.RestoreResourceHookSpec{{PostHooks: []velerov1.RestoreResourceHook{h}}}})
		require.Len(t, problems, 1, field)
		require.Equal(t, field, problems[0].Field)
	}
}
