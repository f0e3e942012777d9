package podhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

var (
	errUnclear = errors.New("the runner ended while the hook ran, which is not run again: how it ended is not known")
	errTimeout = errors.New("it did not end in time")
)

// hookedPod is a Pod that owes hooks. One goroutine at a time uses it, the one for which busy was set; busy,
// next, pause and why are guarded by the Runner.
type hookedPod struct {
	outcome.Owed
	next  time.Time
	pause time.Duration
	busy  bool
	why   string // what the hooks wait for, as the Pod was last read
	// ran is when this process saw the end of the last hook in it.
	ran time.Time
}

// requiresReady reports that the containers of the Pod are waited for until they are ready: one hook with
// that option makes all of them wait (Velero 1.18).
func (p *hookedPod) requiresReady() bool {
	for i := range p.Hooks {
		if p.Hooks[i].Ready {
			return true
		}
	}
	return false
}

// pendingContainers returns those in the order of the hooks that have not ended, each with its hooks.
func (p *hookedPod) pendingContainers() (names []string, hooks map[string][]int) {
	hooks = map[string][]int{}
	for i, state := range p.States {
		if state != outcome.HookOwed {
			continue
		}
		name := p.Hooks[i].Container
		if hooks[name] == nil {
			names = append(names, name)
		}
		hooks[name] = append(hooks[name], i)
	}
	return names, hooks
}

// advanceHooks ends those hooks of a Pod that cannot run, and runs those of one container that can. again
// reports that the Pod is to be visited again at once.
func (r *Runner) advanceHooks(ctx context.Context, p *hookedPod) (again bool) {
	for i, state := range p.States {
		if state == outcome.HookAnnounced {
			r.endHook(p, i, "", errUnclear)
		}
	}
	if why := r.Recorder.HooksStopped(); why != "" {
		r.endOpenHooks(p, fmt.Errorf("%w: a hook whose onError is Fail has failed before: %s", errAbandoned, why))
	}
	if p.Left() == 0 {
		return false
	}
	looked := r.Clock.Now()
	live, err := r.readPod(ctx, p)
	switch {
	case ctx.Err() != nil:
		return false
	case errors.Is(err, errGone), apierrors.IsForbidden(err):
		r.endOpenHooks(p, fmt.Errorf("%w: %w", errAbandoned, err))
		return false
	case err != nil:
		r.expireHooks(p, looked, func(string) string { return err.Error() })
		r.noteHookWait(p, err.Error())
		return false
	}
	names, hooks := p.pendingContainers()
	for _, name := range names {
		if why := live.lacksReason(name); why != "" {
			for _, i := range hooks[name] {
				r.endHook(p, i, "", fmt.Errorf("%w: %s", errAbandoned, why))
			}
			return p.Left() > 0
		}
		if live.waitingReason(name, p.requiresReady()) == "" {
			return r.runContainerHooks(ctx, p, hooks[name], looked)
		}
	}
	r.expireHooks(p, looked, func(name string) string { return live.waitingReason(name, p.requiresReady()) })
	var why []string
	for _, name := range names {
		why = append(why, fmt.Sprintf("hooks wait for container %s: %s", name, live.waitingReason(name, p.requiresReady())))
	}
	r.noteHookWait(p, strings.Join(why, "; "))
	return false
}

// noteHookWait notes what the hooks of a Pod wait for.
func (r *Runner) noteHookWait(p *hookedPod, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.why = why
}

// listWaits returns the Pods whose hooks wait for a container. Those in which a hook runs do not wait.
func (r *Runner) listWaits() (all []outcome.Wait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for node, p := range r.pods {
		if p.why != "" {
			all = append(all, outcome.Wait{Node: node, Reason: p.why, Since: time.UnixMilli(p.Since)})
		}
	}
	return all
}

// waitLimit is how long a hook waits for a container that cannot be used: to a time, or for so long.
func (r *Runner) waitLimit(p *hookedPod, h *outcome.HookCommand) (deadline time.Time, wait time.Duration) {
	since := time.UnixMilli(p.Since)
	if h.WaitDefault && p.ran.After(since) {
		since = p.ran
	}
	return since.Add(h.Wait), h.Wait
}

// firstDeadline is the first time at which expireHooks ends one of the hooks that have not begun.
func (r *Runner) firstDeadline(p *hookedPod) (first time.Time) {
	for i := range p.Hooks {
		if d, _ := r.waitLimit(p, &p.Hooks[i]); p.States[i] == outcome.HookOwed && (first.IsZero() || d.Before(first)) {
			first = d
		}
	}
	return first
}

// expireHooks ends the hooks whose time to begin has passed.
func (r *Runner) expireHooks(p *hookedPod, now time.Time, state func(container string) string) {
	for i := range p.Hooks {
		h := &p.Hooks[i]
		if d, wait := r.waitLimit(p, h); p.States[i] == outcome.HookOwed && !now.Before(d) {
			r.endHook(p, i, "", fmt.Errorf("%w: its container could not be used within %s: %s", errAbandoned, wait, state(h.Container)))
		}
	}
}

// runContainerHooks runs hooks of one container, one after the other.
func (r *Runner) runContainerHooks(ctx context.Context, p *hookedPod, indexes []int, looked time.Time) (again bool) {
	r.noteHookWait(p, "")
	for _, i := range indexes {
		if r.Stop.Requested() {
			return false
		}
		if why := r.Recorder.HooksStopped(); why != "" {
			return true
		}
		// A waitTimeout counts the time that hooks before it took, not that since the container began to run.
		h := &p.Hooks[i]
		if d, wait := r.waitLimit(p, h); !h.WaitDefault && d.After(looked) && !r.Clock.Now().Before(d) {
			r.endHook(p, i, "", fmt.Errorf("%w: hooks before it took longer than its %s", errAbandoned, wait))
			continue
		}
		if !r.runHookOnce(ctx, p, i) {
			return false
		}
	}
	return true
}

// runHookOnce runs a hook. False means that it has no end here: the next holder finds it announced, or not
// begun.
func (r *Runner) runHookOnce(ctx context.Context, p *hookedPod, i int) bool {
	if r.Confirm != nil && r.Confirm(ctx) != nil {
		return false
	}
	r.Recorder.HookBegins(p.Node, i)
	if r.Recorder.Sync(ctx) != nil || ctx.Err() != nil {
		r.Recorder.HookNotBegun(p.Node, i)
		return false
	}
	failpoint.Hit("restore-runner/hook-announced")
	h, target := &p.Hooks[i], r.Names.Target(p.Node)
	limited, cancel := context.WithTimeoutCause(ctx, h.Timeout, fmt.Errorf("%w: %s", errTimeout, h.Timeout))
	defer cancel()
	out, err := r.Exec.Run(limited, &podexec.Command{Namespace: target.Namespace, Pod: target.Name, Container: h.Container, Args: h.Command})
	p.ran = r.Clock.Now()
	failpoint.Hit("restore-runner/hook-ran")
	if err != nil && ctx.Err() != nil {
		return false // how it ended is not known
	}
	said := fmt.Sprintf("hook %q ran in container %s (%s)", h.Command, h.Container, h.Field)
	if out.Stdout != "" {
		said += ", stdout: " + out.Stdout
	}
	if out.Stderr != "" {
		said += ", stderr: " + out.Stderr
	}
	r.endHook(p, i, said, err)
	return true
}

// endHook records how a hook ended.
func (r *Runner) endHook(p *hookedPod, i int, said string, failure error) {
	recordHookEnd(r.Recorder, &p.Owed, i, said, failure)
	p.States[i] = outcome.HookEnded
}

// endOpenHooks ends all hooks of a Pod that have not.
func (r *Runner) endOpenHooks(p *hookedPod, failure error) {
	for i, state := range p.States {
		if state != outcome.HookEnded {
			r.endHook(p, i, "", failure)
		}
	}
}

// recordHookEnd records how a hook ended, and what it wrote. A failure is an error where its onError is Fail,
// else a warning.
func recordHookEnd(recorder *outcome.Recorder, o *outcome.Owed, i int, said string, failure error) {
	e, h := recorder.Begin(o.Node), &o.Hooks[i]
	if said != "" {
		e.Info(said)
	}
	if failure != nil {
		say := e.Warn
		if h.Fail {
			say = e.Error
		}
		say(fmt.Sprintf("hook %q in container %s (%s) failed: %v", h.Command, h.Container, h.Field, failure))
	}
	e.HookEnded(i, failure != nil)
	e.Commit()
}
