package hook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
)

type nameLists map[string]schema.GroupResource

func (n nameLists) Resolve(name string) (schema.GroupResource, bool, bool) {
	gr, ok := n[name]
	return gr, true, ok
}

var known = nameLists{"pods": {Resource: "pods"}, "po": {Resource: "pods"}, "deployments": {Group: "apps", Resource: "deployments"}}

func newExecHook(command string) velerov1.BackupResourceHook {
	return velerov1.BackupResourceHook{Exec: &velerov1.ExecHook{Command: []string{command}}}
}

func execCommands(list []hook.Exec) (out []string) {
	for _, e := range list {
		out = append(out, e.Command[0])
	}
	return out
}

func TestHooksOfTheSpecAreChosenByNamespaceResourceAndLabel(t *testing.T) {
	set := func(name string, change func(*velerov1.BackupResourceHookSpec)) velerov1.BackupResourceHookSpec {
		s := velerov1.BackupResourceHookSpec{Name: name, PreHooks: []velerov1.BackupResourceHook{newExecHook(name)}, PostHooks: []velerov1.BackupResourceHook{newExecHook(name)}}
		change(&s)
		return s
	}
	b, err := hook.NewBackup(&velerov1.BackupHooks{Resources: []velerov1.BackupResourceHookSpec{
		set("all", func(*velerov1.BackupResourceHookSpec) {}),
		set("in-a", func(s *velerov1.BackupResourceHookSpec) { s.IncludedNamespaces = []string{"a"} }),
		set("in-pattern", func(s *velerov1.BackupResourceHookSpec) { s.IncludedNamespaces = []string{"prod-*"} }),
		set("not-a", func(s *velerov1.BackupResourceHookSpec) { s.ExcludedNamespaces = []string{"a"} }),
		set("pods", func(s *velerov1.BackupResourceHookSpec) { s.IncludedResources = []string{"po"} }),
		set("deployments", func(s *velerov1.BackupResourceHookSpec) { s.IncludedResources = []string{"deployments"} }),
		set("no-pods", func(s *velerov1.BackupResourceHookSpec) { s.ExcludedResources = []string{"pods"} }),
		set("globs", func(s *velerov1.BackupResourceHookSpec) {
			s.IncludedResources, s.ExcludedResources = []string{"p[n-p]d*"}, []string{"*.apps"}
		}),
		set("no-pods-by-glob", func(s *velerov1.BackupResourceHookSpec) { s.ExcludedResources = []string{"po*"} }),
		set("labelled", func(s *velerov1.BackupResourceHookSpec) {
			s.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
		}),
	}}, known)
	require.NoError(t, err)
	for _, c := range []struct {
		pod  hook.Pod
		want []string
	}{
		{hook.Pod{Namespace: "a"}, []string{"all", "in-a", "pods", "globs"}},
		{hook.Pod{Namespace: "prod-1", Labels: labels.Set{"app": "db"}}, []string{"all", "in-pattern", "not-a", "pods", "globs", "labelled"}},
	} {
		got, err := b.Of(&c.pod)
		require.NoError(t, err)
		require.Equal(t, c.want, execCommands(got.Pre))
		require.Equal(t, c.want, execCommands(got.Post))
		require.True(t, got.Any())
		require.Equal(t, hook.DefaultTimeout, got.Pre[0].Timeout)
		require.Equal(t, "spec.hooks.resources[0].pre[0].exec", got.Pre[0].Field)
	}
}

// Annotations of one phase take the place of the spec's hooks of that phase, and of no other.
func TestAnnotationsTakeThePlaceOfTheSpec(t *testing.T) {
	b, err := hook.NewBackup(&velerov1.BackupHooks{Resources: []velerov1.BackupResourceHookSpec{{
		Name: "s", PreHooks: []velerov1.BackupResourceHook{newExecHook("spec")}, PostHooks: []velerov1.BackupResourceHook{newExecHook("spec")}}}}, known)
	require.NoError(t, err)
	of := func(set labels.Set) hook.Around {
		got, err := b.Of(&hook.Pod{Namespace: "a", Annotations: set})
		require.NoError(t, err)
		return got
	}
	got := of(labels.Set{"pre.hook.backup.velero.io/command": `["/bin/sh", "-c", "sync; sync"]`, "pre.hook.backup.velero.io/container": "db",
		"pre.hook.backup.velero.io/on-error": "Fail", "pre.hook.backup.velero.io/timeout": "1m30s", "hook.backup.velero.io/command": "not this"})
	require.Equal(t, []hook.Exec{{Field: "annotation pre.hook.backup.velero.io/command", Container: "db",
		Command: []string{"/bin/sh", "-c", "sync; sync"}, Fail: true, Timeout: 90 * time.Second}}, got.Pre)
	require.Equal(t, []string{"spec"}, execCommands(got.Post))
	got = of(labels.Set{"hook.backup.velero.io/command": "/usr/bin/old name", "post.hook.backup.velero.io/command": "thaw"})
	require.Equal(t, []string{"/usr/bin/old name"}, execCommands(got.Pre), "one word is the program, there is no shell")
	require.Equal(t, []string{"thaw"}, execCommands(got.Post))
	require.Equal(t, hook.DefaultTimeout, got.Post[0].Timeout)
}

func TestATimeoutOfZeroIsTheDefault(t *testing.T) {
	b, err := hook.NewBackup(&velerov1.BackupHooks{}, known)
	require.NoError(t, err)
	got, err := b.Of(&hook.Pod{Annotations: labels.Set{"pre.hook.backup.velero.io/command": "x", "pre.hook.backup.velero.io/timeout": "0s"}})
	require.NoError(t, err)
	require.Equal(t, hook.DefaultTimeout, got.Pre[0].Timeout)
}

func TestABadAnnotationIsNamed(t *testing.T) {
	b, err := hook.NewBackup(&velerov1.BackupHooks{}, known)
	require.NoError(t, err)
	for key, value := range map[string]string{
		"pre.hook.backup.velero.io/timeout": "soon", "post.hook.backup.velero.io/timeout": "-1s", "pre.hook.backup.velero.io/on-error": "Ignore",
		"post.hook.backup.velero.io/command": `["a"`, "pre.hook.backup.velero.io/command": `[]`,
	} {
		set := labels.Set{"pre.hook.backup.velero.io/command": "x", "post.hook.backup.velero.io/command": "x"}
		set[key] = value
		got, err := b.Of(&hook.Pod{Annotations: set})
		require.ErrorContains(t, err, "annotation "+key+": ")
		require.True(t, got.Any())
	}
	_, err = b.Of(&hook.Pod{Annotations: labels.Set{"post.hook.backup.velero.io/container": "db"}})
	require.ErrorContains(t, err, "post.hook.backup.velero.io/container")
	got, err := b.Of(&hook.Pod{})
	require.NoError(t, err)
	require.False(t, got.Any())
}

func TestABadSpecIsNamed(t *testing.T) {
	for field, set := range map[string]velerov1.BackupResourceHookSpec{
		"spec.hooks.resources[0].pre[0].exec":           {PreHooks: []velerov1.BackupResourceHook{{}}},
		"spec.hooks.resources[0].post[0].exec.command":  {PostHooks: []velerov1.BackupResourceHook{{Exec: &velerov1.ExecHook{}}}},
		"spec.hooks.resources[0].pre[0].exec.onError":   {PreHooks: []velerov1.BackupResourceHook{{Exec: &velerov1.ExecHook{Command: []string{"x"}, OnError: "Stop"}}}},
		"spec.hooks.resources[0].pre[0].exec.container": {PreHooks: []velerov1.BackupResourceHook{{Exec: &velerov1.ExecHook{Command: []string{"x"}, Container: "a/b"}}}},
		"spec.hooks.resources[0].pre[0].exec.timeout": {PreHooks: []velerov1.BackupResourceHook{
			{Exec: &velerov1.ExecHook{Command: []string{"x"}, Timeout: metav1.Duration{Duration: -1}}}}},
		"spec.hooks.resources[0].labelSelector":                          {LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": "-"}}},
		"spec.hooks.resources[0].includedNamespaces, excludedNamespaces": {IncludedNamespaces: []string{"a"}, ExcludedNamespaces: []string{"a"}},
		"spec.hooks.resources[0].includedResources, excludedResources":   {ExcludedResources: []string{"*"}},
	} {
		hooks := velerov1.BackupHooks{Resources: []velerov1.BackupResourceHookSpec{set}}
		problems := hook.CheckBackup(&hooks)
		require.Len(t, problems, 1, field)
		require.Equal(t, field, problems[0].Field)
		_, err := hook.NewBackup(&hooks, known)
		require.ErrorContains(t, err, field)
	}
}

func FuzzAnnotations(f *testing.F) {
	f.Add(`["sh","-c","x"]`, "Fail", "30s")
	f.Add("[", "", "1")
	b, err := hook.NewBackup(&velerov1.BackupHooks{}, known)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, command, mode, timeout string) {
		got, err := b.Of(&hook.Pod{Annotations: labels.Set{"pre.hook.backup.velero.io/command": command,
			"pre.hook.backup.velero.io/on-error": mode, "pre.hook.backup.velero.io/timeout": timeout}})
		if err == nil && len(got.Pre) > 0 {
			require.NotEmpty(t, got.Pre[0].Command)
			require.NotEmpty(t, got.Pre[0].Command[0])
			require.Positive(t, got.Pre[0].Timeout)
		}
	})
}
