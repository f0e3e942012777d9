package podhook

import (
	"context"
	"errors"
	"fmt"
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

// tellAfter is how long a Pod is waited for until that is logged.
const tellAfter = time.Minute

// pod is a Pod that owes hooks. One goroutine at a time uses it, the one for which busy was set; busy,
// next and pause are guarded by the Runner.
type pod struct {
	outcome.Owed
	next  time.Time
	pause time.Duration
	busy  bool
	told  bool // what it waits for was logged
	// ran is when this process saw the end of the last hook in it.
	ran time.Time
}

// ready reports that the containers of the Pod are waited for until they are ready: one hook with
// that option makes all of them wait (Velero 1.18).
func (p *pod) ready() bool {
	for i := range p.Hooks {
		if p.Hooks[i].Ready {
			return true
		}
	}
	return false
}

// containers returns those in the order of the hooks that have not ended, each with its hooks.
func (p *pod) containers() (names []string, hooks map[string][]int) {
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

// advance ends those hooks of a Pod that cannot run, and runs those of one container that can. again
// reports that the Pod is to be visited again at once.
func (r *Runner) advance(ctx context.Context, p *pod) (again bool) {
	for i, state := range p.States {
		if state == outcome.HookAnnounced {
			r.end(p, i, "", errUnclear)
		}
	}
	if why := r.Recorder.HooksStopped(); why != "" {
		r.endAll(p, fmt.Errorf("%w: a hook whose onError is Fail has failed before: %s", errAbandoned, why))
	}
	if p.Left() == 0 {
		return false
	}
	looked := r.Clock.Now()
	live, err := r.read(ctx, p)
	switch {
	case ctx.Err() != nil:
		return false
	case errors.Is(err, errGone), apierrors.IsForbidden(err):
		r.endAll(p, fmt.Errorf("%w: %w", errAbandoned, err))
		return false
	case err != nil:
		r.expire(p, looked, func(string) string { return err.Error() })
		return false
	}
	names, hooks := p.containers()
	for _, name := range names {
		if !live.has(name) || live.over(name) != "" {
			for _, i := range hooks[name] {
				r.end(p, i, "", fmt.Errorf("%w: %s", errAbandoned, live.lacks(name)))
			}
			return p.Left() > 0
		}
		if live.waits(name, p.ready()) == "" {
			return r.runAll(ctx, p, hooks[name], looked)
		}
	}
	r.expire(p, looked, func(name string) string { return live.waits(name, p.ready()) })
	r.tell(p, looked, live, names)
	return false
}

// tell logs what the hooks of a Pod wait for, once.
func (r *Runner) tell(p *pod, now time.Time, live *live, names []string) {
	if p.told || p.Left() == 0 || now.Sub(time.UnixMilli(p.Since)) < tellAfter {
		return
	}
	p.told = true
	for _, name := range names {
		r.Recorder.Info(p.Node, fmt.Sprintf("hooks wait for container %s: %s", name, live.waits(name, p.ready())))
	}
}

// until is how long a hook waits for a container that cannot be used: to a time, or for so long.
func (r *Runner) until(p *pod, h *outcome.HookCommand) (deadline time.Time, wait time.Duration) {
	since := time.UnixMilli(p.Since)
	if h.WaitDefault && p.ran.After(since) {
		since = p.ran
	}
	return since.Add(h.Wait), h.Wait
}

// deadline is the first time at which expire ends one of the hooks that have not begun.
func (r *Runner) deadline(p *pod) (first time.Time) {
	for i := range p.Hooks {
		if d, _ := r.until(p, &p.Hooks[i]); p.States[i] == outcome.HookOwed && (first.IsZero() || d.Before(first)) {
			first = d
		}
	}
	return first
}

// expire ends the hooks whose time to begin has passed.
func (r *Runner) expire(p *pod, now time.Time, state func(container string) string) {
	for i := range p.Hooks {
		h := &p.Hooks[i]
		if d, wait := r.until(p, h); p.States[i] == outcome.HookOwed && !now.Before(d) {
			r.end(p, i, "", fmt.Errorf("%w: its container could not be used within %s: %s", errAbandoned, wait, state(h.Container)))
		}
	}
}

// runAll runs hooks of one container, one after the other.
func (r *Runner) runAll(ctx context.Context, p *pod, indexes []int, looked time.Time) (again bool) {
	for _, i := range indexes {
		if r.Stop.Requested() {
			return false
		}
		if why := r.Recorder.HooksStopped(); why != "" {
			return true
		}
		// A waitTimeout counts the time that hooks before it took, not that since the container began to run.
		h := &p.Hooks[i]
		if d, wait := r.until(p, h); !h.WaitDefault && d.After(looked) && !r.Clock.Now().Before(d) {
			r.end(p, i, "", fmt.Errorf("%w: hooks before it took longer than its %s", errAbandoned, wait))
			continue
		}
		if !r.once(ctx, p, i) {
			return false
		}
	}
	return true
}

// once runs a hook. False means that it has no end here: the next holder finds it announced, or not
// begun.
func (r *Runner) once(ctx context.Context, p *pod, i int) bool {
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
	r.end(p, i, said, err)
	return true
}

// end records how a hook ended.
func (r *Runner) end(p *pod, i int, said string, failure error) {
	end(r.Recorder, &p.Owed, i, said, failure)
	p.States[i] = outcome.HookEnded
}

// endAll ends all hooks of a Pod that have not.
func (r *Runner) endAll(p *pod, failure error) {
	for i, state := range p.States {
		if state != outcome.HookEnded {
			r.end(p, i, "", failure)
		}
	}
}

// end records how a hook ended, and what it wrote. A failure is an error where its onError is Fail,
// else a warning.
func end(recorder *outcome.Recorder, o *outcome.Owed, i int, said string, failure error) {
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
