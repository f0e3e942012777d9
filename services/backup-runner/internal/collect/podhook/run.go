package podhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

var (
	// ErrUnclear is what is known of a pre hook that an earlier holder was about to run.
	ErrUnclear   = errors.New("the runner ended while the hook ran, which is not run again: how it ended is not known")
	errContainer = errors.New("container")
	errTimeout   = errors.New("it did not end in time")
)

// Pre runs the pre hooks of a Pod, one after the other, and sets Refused where the Pod is not to be
// stored. That the Pod's hooks begin is durable before the first, and how they ended when it
// returns. An error ends the job.
func (r *Runner) Pre(ctx context.Context, p *Pod) error {
	if p.unusable != nil {
		p.failed = p.attempted
		for i := range p.hooks.Pre {
			if p.hooks.Pre[i].Fail {
				p.Refused = p.unusable
				return nil
			}
		}
		p.noteMessage(joblog.Error, "no hook was run: an annotation cannot be used", p.unusable)
		return nil
	}
	if r.RanEarly && r.Past.Begun(p.object) {
		p.noteMessage(joblog.Error, "hooks did not run around the backup of the pod", ErrEarly)
		return nil
	}
	if err := r.recordOpened(ctx, p); err != nil {
		return err
	}
	for i := range p.hooks.Pre {
		e := &p.hooks.Pre[i]
		failure, err := r.runHookOnce(ctx, p, e, checkpoint.Hook{Pod: p.object, Phase: checkpoint.HookPre, Index: i})
		if err != nil {
			return err
		}
		if errors.Is(failure, ErrEarly) {
			break
		}
		if failure == nil {
			continue
		}
		p.failed++
		if e.Fail {
			p.Refused = fmt.Errorf("%s: %w", e.Field, failure)
			break
		}
		p.noteMessage(joblog.Error, "pre hook failed ("+e.Field+")", failure)
	}
	return r.Intents.FlushOutcomes(ctx)
}

// recordOpened makes durable that the hooks of a Pod begin, unless an earlier holder did, and keeps in
// memory that they did.
func (r *Runner) recordOpened(ctx context.Context, p *Pod) error {
	opens := &checkpoint.HookedPod{Object: p.object, Pre: len(p.hooks.Pre)}
	for _, e := range p.hooks.Post {
		// One that the Pod does not have keeps its name: no holder runs the command in another.
		if name, err := p.hookContainer(&e); err == nil {
			e.Container = name
		}
		opens.Post = append(opens.Post, checkpoint.HookCommand(e))
	}
	if !r.Past.Begun(p.object) {
		if err := r.Intents.Hook(ctx, opens, nil); err != nil {
			return err
		}
	}
	r.Opened.addPod(opens, false)
	return nil
}

// Post runs the post hooks of a Pod, all of them. An error ends the job.
func (r *Runner) Post(ctx context.Context, p *Pod) error {
	if p.unusable != nil {
		return nil
	}
	o := r.Opened.openedPod(p.object)
	if !p.owed && o.ranEarly() {
		p.noteMessage(joblog.Error, "hooks did not run around the backup of the pod", ErrEarly)
	}
	for i := range p.hooks.Post {
		e := &p.hooks.Post[i]
		failure, err := r.runHookOnce(ctx, p, e, checkpoint.Hook{Pod: p.object, Phase: checkpoint.HookPost, Index: i})
		if err != nil {
			return err
		}
		if failure != nil {
			p.failed++
			p.noteMessage(joblog.Error, "post hook failed ("+e.Field+")", failure)
		}
	}
	p.entries = append(p.entries, o.earlyEntries()...)
	r.Opened.removePod(p.object)
	if err := r.Intents.FlushOutcomes(ctx); err != nil {
		return err
	}
	failpoint.Hit("backup-runner/hooks-recorded")
	return nil
}

// runHookOnce runs a hook whose end is not recorded. One that an earlier holder was about to run is not
// run again, but for a post hook: what it undoes must not stay. A post hook of a Pod that an earlier
// holder left between its hooks may have run without a record, and is recorded as a retry. The error
// ends the job.
func (r *Runner) runHookOnce(ctx context.Context, p *Pod, e *hook.Exec, h checkpoint.Hook) (failure, err error) {
	outcome, announced := r.Past.Ran(h)
	switch {
	case outcome != nil && outcome.Error == "":
		return nil, nil
	case outcome != nil:
		return errors.New(outcome.Error), nil //nolint:err113 // what an earlier holder recorded
	case announced && h.Phase == checkpoint.HookPre:
		return ErrUnclear, nil
	case announced:
		p.noteMessage(joblog.Warning, "post hook runs again ("+e.Field+")", ErrAgain)
	}
	container, failure := e.Container, error(nil)
	if p.containers != nil {
		container, failure = p.hookContainer(e)
	}
	if failure != nil {
		return failure, nil
	}
	if r.Confirm != nil {
		if err := r.Confirm(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.Intents.Hook(ctx, nil, &checkpoint.HookIntent{Hook: h, Retry: announced || h.Phase == checkpoint.HookPost && r.Past.Begun(p.object)}); err != nil {
		return nil, err
	}
	callForPhase(h.Phase, func() { failpoint.Hit("backup-runner/pre-hook-announced") }, func() { failpoint.Hit("backup-runner/post-hook-announced") })
	failure = r.runHookAlone(ctx, p, e, container, h)
	if errors.Is(failure, ErrEarly) {
		return failure, nil
	}
	if failure != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx) // how it ended is not known
	}
	out := checkpoint.HookOutcome{Hook: h}
	if failure != nil {
		out.Error = failure.Error()
	}
	r.Intents.EndHook(&out)
	callForPhase(h.Phase, func() { failpoint.Hit("backup-runner/pre-hook-ended") }, func() { failpoint.Hit("backup-runner/post-hook-ended") })
	return failure, nil
}

// runHookAlone runs a hook while no other one of its Pod runs. A post hook that this process ran before is
// not run again. The error is ErrEarly for a pre hook that does not run since post hooks ran early.
func (r *Runner) runHookAlone(ctx context.Context, p *Pod, e *hook.Exec, container string, h checkpoint.Hook) error {
	o := r.Opened.openedPod(p.object)
	if o == nil {
		return r.runCommand(ctx, p, e, container, h.Phase)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.Phase == checkpoint.HookPre {
		if o.early {
			return ErrEarly
		}
		o.changed = true
		return r.runCommand(ctx, p, e, container, h.Phase)
	}
	if failure, ended := o.ends[h.Index]; ended {
		return failure
	}
	failure := r.runCommand(ctx, p, e, container, h.Phase)
	o.notePostHook(h.Index, failure)
	return failure
}

// callForPhase calls the function for a phase.
func callForPhase(phase string, pre, post func()) {
	if phase == checkpoint.HookPre {
		pre()
		return
	}
	post()
}

// ErrAgain is why a post hook is run a second time.
var ErrAgain = errors.New("the runner ended while it ran")

// runCommand runs a command and notes what it wrote.
func (r *Runner) runCommand(ctx context.Context, p *Pod, e *hook.Exec, container, phase string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.Timeout, fmt.Errorf("%w: %s", errTimeout, e.Timeout))
	defer cancel()
	out, err := r.Exec.Run(ctx, &podexec.Command{Namespace: p.object.Namespace, Pod: p.object.Name, Container: container, Args: e.Command})
	message := fmt.Sprintf("%s hook %q ran in container %s (%s)", phase, e.Command, container, e.Field)
	if out.Stdout != "" {
		message += ", stdout: " + out.Stdout
	}
	if out.Stderr != "" {
		message += ", stderr: " + out.Stderr
	}
	p.noteMessage(joblog.Info, message, nil)
	if err != nil {
		return fmt.Errorf("%q in container %s: %w", e.Command, container, err)
	}
	return nil
}
