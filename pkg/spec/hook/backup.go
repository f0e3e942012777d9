package hook

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// CheckBackup finds what is wrong with the hooks of a backup. Fields begin with "spec.hooks".
func CheckBackup(hooks *velerov1.BackupHooks) (out []Problem) {
	for i := range hooks.Resources {
		set, path := &hooks.Resources[i], fmt.Sprintf("spec.hooks.resources[%d]", i)
		out = append(out, scopeOf(set).checkScope(path)...)
		for phase, list := range map[string][]velerov1.BackupResourceHook{".pre": set.PreHooks, ".post": set.PostHooks} {
			for n := range list {
				out = append(out, checkBackupExec(fmt.Sprintf("%s%s[%d].exec", path, phase, n), list[n].Exec)...)
			}
		}
	}
	return out
}

func checkBackupExec(path string, e *velerov1.ExecHook) []Problem {
	if e == nil {
		return []Problem{{path, errNoExec.Error()}}
	}
	return append(checkExec(path, e.Container, e.Command, e.OnError), checkTimeout(path+".timeout", e.Timeout.Duration)...)
}

func scopeOf(set *velerov1.BackupResourceHookSpec) *hookScope {
	return &hookScope{
		includedNamespaces: set.IncludedNamespaces, excludedNamespaces: set.ExcludedNamespaces,
		includedResources: set.IncludedResources, excludedResources: set.ExcludedResources, labelSelector: set.LabelSelector,
	}
}

// Backup are the hooks of the spec of a backup. Immutable.
type Backup struct{ sets []backupSet }

type backupSet struct {
	matcher
	pre, post []Exec
}

// NewBackup returns hooks that CheckBackup finds nothing wrong with.
func NewBackup(hooks *velerov1.BackupHooks, r selection.Resolver) (*Backup, error) {
	if bad := CheckBackup(hooks); len(bad) > 0 {
		return nil, fmt.Errorf("%s: %s", bad[0].Field, bad[0].Message) //nolint:err113 // names a field of the user
	}
	b := &Backup{}
	for i := range hooks.Resources {
		spec, path := &hooks.Resources[i], fmt.Sprintf("spec.hooks.resources[%d]", i)
		m, err := scopeOf(spec).newMatcher(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		b.sets = append(b.sets, backupSet{m, backupExecs(path+".pre", spec.PreHooks), backupExecs(path+".post", spec.PostHooks)})
	}
	return b, nil
}

func backupExecs(path string, list []velerov1.BackupResourceHook) (out []Exec) {
	for i := range list {
		e := list[i].Exec
		out = append(out, Exec{
			Field: fmt.Sprintf("%s[%d].exec", path, i), Container: e.Container, Command: e.Command,
			Fail: e.OnError == velerov1.HookErrorModeFail, Timeout: cmp.Or(e.Timeout.Duration, DefaultTimeout),
		})
	}
	return out
}

// Pod is what hooks are chosen by. Labels and Annotations may be nil.
type Pod struct {
	Namespace           string
	Labels, Annotations labels.Labels
}

func (p *Pod) annotationAt(key string) string {
	if p.Annotations == nil {
		return ""
	}
	return p.Annotations.Get(key)
}

func (p *Pod) labelSet() labels.Labels {
	if p.Labels == nil {
		return labels.Set{}
	}
	return p.Labels
}

// Around are the hooks around the backup of one Pod, in the order in which they run.
type Around struct{ Pre, Post []Exec }

// Any reports whether there are hooks.
func (a *Around) Any() bool { return len(a.Pre)+len(a.Post) > 0 }

// Of returns the hooks of a Pod. Annotations of one phase take the place of the spec's hooks of
// that phase. Annotations that cannot be used are the error; what could be read of them is returned
// all the same.
func (b *Backup) Of(pod *Pod) (Around, error) {
	var a Around
	for i := range b.sets {
		if set := &b.sets[i]; set.matchesPod(pod.Namespace, pod.labelSet()) {
			a.Pre, a.Post = append(a.Pre, set.pre...), append(a.Post, set.post...)
		}
	}
	pre, err := annotatedExec(pod, velerov1.AnnotationPreBackupHookPrefix)
	if pre == nil && err == nil {
		pre, err = annotatedExec(pod, velerov1.AnnotationBackupHookPrefix)
	}
	post, postErr := annotatedExec(pod, velerov1.AnnotationPostBackupHookPrefix)
	if pre != nil {
		a.Pre = []Exec{*pre}
	}
	if post != nil {
		a.Post = []Exec{*post}
	}
	return a, errors.Join(err, postErr)
}

// annotatedExec returns the hook that annotations with a prefix ask for; nil if none does.
func annotatedExec(pod *Pod, prefix string) (*Exec, error) {
	a := hookAnnotations{pod.annotationAt, prefix}
	if a.get(prefix+"command") == "" {
		return nil, a.orphanError("command")
	}
	return a.parseExec("timeout")
}
