// Package podhook runs the hooks of restored Pods: commands in their containers, once these run. Each
// is run once per restore, also over takeovers. Other objects are restored meanwhile.
package podhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// Executor runs commands in containers; podexec.Client is one.
type Executor interface {
	Run(ctx context.Context, cmd *podexec.Command) (podexec.Output, error)
}

// Config is what hooks are run with.
type Config struct {
	// Spec are the hooks of the restore's spec.
	Spec *velerov1.RestoreHooks
	// Exec runs the commands. Nil runs none, and no Pod owes any.
	Exec Executor
	// DryRun, without Exec, has the hooks of each Pod be counted.
	DryRun   bool
	Recorder *outcome.Recorder
	Existing *object.LiveReader
	Names    *object.Names
	// Confirm returns an error if the restore may be another holder's by now; nil means that it
	// never is.
	Confirm func(ctx context.Context) error
	// NoHistory reports that nothing is known of what earlier holders did.
	NoHistory bool
	// MaxWait bounds how long the hooks without a waitTimeout wait for a container that cannot be used,
	// from the restore of the Pod or the end of the last hook in it; 0 means 4 hours. Velero waits
	// without limit, and a restore with such a Pod never ends.
	MaxWait time.Duration
	Clock   clock.WithTicker
	Stop    object.StopSignal
}

// maxWait is Velero 1.18's default of spec.itemOperationTimeout.
const maxWait = 4 * time.Hour

// Runner runs hooks. Safe for concurrent use.
type Runner struct {
	Config
	news     chan struct{} // a Pod was added, or is due at once
	group    sync.WaitGroup
	panicked error // the panic of a visit

	mu   sync.Mutex
	pods map[int32]*hookedPod
	left chan struct{} // closed when a Pod leaves
}

// New returns a runner that has the hooks which earlier holders left. Nothing runs before Start.
func New(cfg Config) *Runner {
	r := &Runner{Config: cfg, news: make(chan struct{}, 1), pods: map[int32]*hookedPod{}, left: make(chan struct{})}
	if cfg.Exec == nil {
		return r
	}
	for _, o := range cfg.Recorder.Owed() {
		r.pods[o.Node] = &hookedPod{Owed: o}
	}
	return r
}

// Hooks are those that a Pod owes once its outcome is recorded; nil is none.
type Hooks struct {
	pod *outcome.HookedPod
	// unclear: it is not known whether they ran before.
	unclear bool
}

// Of returns the hooks of an object, if it is a Pod that this restore created, and notes them for its
// outcome. A dry run says how many there are, and has none.
func (r *Runner) Of(e *outcome.Entry, o *object.Object, result *apply.Result) *Hooks {
	if r.Exec == nil && !r.DryRun || result.Action != apply.Created || o.Target.GVR.Group != "" || o.Target.GVR.Resource != "pods" {
		return nil
	}
	annotations := object.LabelsAt(object.MapAt(object.MapAt(o.Body, "metadata"), "annotations"))
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if message := hook.UnknownRestoreKey(key); message != "" {
			e.Warn(message)
		}
	}
	found, err := hook.OfRestored(r.Spec, &hook.Pod{Namespace: o.Target.Namespace, Labels: object.LabelsOf(o.Body), Annotations: annotations})
	if err != nil {
		e.Error(fmt.Sprintf("no hook is run in it: %v", err))
		e.Hooked(&outcome.HookedPod{UID: result.UID, Unusable: true})
		return nil
	}
	if len(found) == 0 {
		return nil
	}
	if r.DryRun {
		e.Info(fmt.Sprintf("hooks would run in it: %d", len(found)))
		return nil
	}
	p := &outcome.HookedPod{UID: result.UID, Since: r.Clock.Now().UnixMilli()}
	for i := range found {
		h := recordedCommand(&found[i], o.Body)
		if h.Wait == 0 {
			h.Wait, h.WaitDefault = cmp.Or(r.MaxWait, maxWait), true
		}
		p.Hooks = append(p.Hooks, h)
	}
	e.Hooked(p)
	return &Hooks{pod: p, unclear: r.NoHistory && result.Version == ""}
}

// recordedCommand is a hook as it is recorded. Without a container's name it is for the first one.
func recordedCommand(h *hook.Restored, body map[string]any) outcome.HookCommand {
	c := outcome.HookCommand{Field: h.Field, Container: h.Container, Command: h.Command, Fail: h.Fail, Timeout: h.Timeout, Wait: h.Wait, Ready: h.Ready}
	containers := object.ListAt(object.MapAt(body, "spec"), "containers")
	if c.Container == "" && len(containers) > 0 {
		if first, ok := containers[0].(map[string]any); ok {
			c.Container = object.TextAt(first, "name")
		}
	}
	return c
}

// RunLater runs hooks of an object, whose outcome is recorded, once they can be run.
func (r *Runner) RunLater(node int32, hooks *Hooks) {
	if hooks == nil {
		return
	}
	p := &hookedPod{Owed: outcome.Owed{Node: node, HookedPod: hooks.pod, States: make([]outcome.HookState, len(hooks.pod.Hooks))}}
	if hooks.unclear {
		for i := range p.States {
			p.States[i] = outcome.HookAnnounced
		}
	}
	r.mu.Lock()
	r.pods[node] = p
	r.mu.Unlock()
	r.wakeServe()
}

func (r *Runner) wakeServe() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

var errAbandoned = errors.New("it did not run")

// Abandon makes each hook that has not ended a failure of its Pod, because of what a restore ends
// with.
func Abandon(recorder *outcome.Recorder, why string) {
	for _, o := range recorder.Owed() {
		for i, state := range o.States {
			switch state {
			case outcome.HookOwed:
				recordHookEnd(recorder, &o, i, "", fmt.Errorf("%w: %s", errAbandoned, why))
			case outcome.HookAnnounced:
				recordHookEnd(recorder, &o, i, "", fmt.Errorf("%w (%s)", errUnclear, why))
			}
		}
	}
}
