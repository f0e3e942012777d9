package hook

import (
	"cmp"
	"errors"
	"time"

	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Restored is a command that runs in a Pod after it was restored, once its container runs.
type Restored struct {
	Exec
	// Wait bounds the time from the restore of the Pod until the command begins; 0 is no bound.
	Wait time.Duration
	// Ready waits for the container to be ready, not only for it to run.
	Ready bool
}

// OfRestored returns the commands for a restored Pod, which is in its target namespace: the one of
// its annotations, or else those of the spec's hooks, in their order. Annotations that cannot be used
// are the error.
func OfRestored(hooks *velerov1.RestoreHooks, pod *Pod) ([]Restored, error) {
	annotated, err := annotatedRestored(pod)
	if annotated != nil || err != nil {
		return annotated, err
	}
	var out []Restored
	err = eachHook(hooks, pod, func(path string, h *velerov1.RestoreResourceHook) error {
		if e := h.Exec; e != nil {
			out = append(out, Restored{
				Exec: Exec{
					Field: path + ".exec", Container: e.Container, Command: e.Command,
					Fail: e.OnError == velerov1.HookErrorModeFail, Timeout: cmp.Or(e.ExecTimeout.Duration, DefaultTimeout),
				},
				Wait: e.WaitTimeout.Duration, Ready: ptr.Deref(e.WaitForReady, false),
			})
		}
		return nil
	})
	return out, err
}

// annotatedRestored returns the command that the annotations of a Pod ask for, nil if they ask for
// none. Any value of wait-for-ready but "true" is false (Velero 1.18).
func annotatedRestored(pod *Pod) ([]Restored, error) {
	a := hookAnnotations{pod.annotationAt, velerov1.AnnotationPostRestoreHookPrefix}
	if a.get(a.prefix+"command") == "" {
		return nil, a.orphanError("command")
	}
	e, err := a.parseExec("exec-timeout")
	wait, waitErr := a.parseDuration("wait-timeout", 0)
	if err := errors.Join(err, waitErr); err != nil {
		return nil, err
	}
	return []Restored{{Exec: *e, Wait: wait, Ready: a.get(a.prefix+"wait-for-ready") == "true"}}, nil
}
