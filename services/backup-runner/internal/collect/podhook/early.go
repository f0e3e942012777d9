package podhook

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// ErrEarly is what is wrong with the backup of a Pod whose post hooks ran before what they follow.
var ErrEarly = errors.New("the bucket did not answer while the pod was between its hooks: its post hooks ran before it was backed up")

// RunEarly runs the post hooks of the Opened Pods that are between their hooks, without a record of
// each: what lies between the hooks, or the record that they run, waits for too long. announce is
// called before the first, and not where none is to run. A pre hook that runs is waited for, which
// delays no other Pod, and no other one of these Pods runs afterwards. A hook of which it is not known
// how it ended is left to the next call, and to Post. cfg needs no Set and no Intents. Safe beside the
// runner of the Pods.
func RunEarly(ctx context.Context, cfg Config, announce func(context.Context)) {
	runner := New(cfg)
	places := make(chan struct{}, owedAtOnce)
	announced := sync.OnceFunc(func() { announce(ctx) })
	var group panics.Group
	for _, o := range cfg.Opened.openedPods() {
		group.Go(func() error {
			o.mu.Lock()
			defer o.mu.Unlock()
			if !o.changed || len(o.ends) >= len(o.pod.Post) {
				return nil
			}
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
			case <-ctx.Done():
				return nil
			}
			announced()
			if runner.Confirm == nil || runner.Confirm(ctx) == nil {
				runner.runEarlyHooks(ctx, o)
			}
			return nil
		})
	}
	_ = group.Wait() // none returns an error
}

// runEarlyHooks runs the post hooks of a Pod that have not run, with its mu locked.
func (r *Runner) runEarlyHooks(ctx context.Context, o *openedHooks) {
	r.Log.WarnContext(ctx, "Running post hooks early", "namespace", o.pod.Namespace, "pod", o.pod.Name)
	o.early = true
	p := r.Owed(&o.pod)
	for i := range p.hooks.Post {
		if _, ended := o.ends[i]; ended {
			continue
		}
		e := &p.hooks.Post[i]
		failure := r.runCommand(ctx, p, e, e.Container, checkpoint.HookPost)
		if failure != nil && ctx.Err() != nil {
			break
		}
		o.notePostHook(i, failure)
	}
	o.entries = append(o.entries, p.Entries()...)
}

// notePostHook notes how a post hook ended, unless the command may not have run to its end.
func (o *openedHooks) notePostHook(index int, failure error) {
	if failure == nil || podexec.Exited(failure) {
		o.ends[index] = failure
	}
}
