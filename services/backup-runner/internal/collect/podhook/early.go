package podhook

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// ErrEarly is what is wrong with the backup of a Pod whose post hooks ran before what they follow.
var ErrEarly = errors.New("the bucket did not answer while the pod was between its hooks: its post hooks ran before it was backed up")

// RunEarly runs the post hooks of the Opened Pods that are between their hooks, without a record of
// each: what lies between the hooks, or the record that they run, waits for too long. announce is
// called before the first, and not where none is to run. A pre hook that runs is waited for, and no
// other one of these Pods runs afterwards. cfg needs no Set and no Intents. Safe beside the runner of
// the Pods.
func RunEarly(ctx context.Context, cfg Config, announce func(context.Context)) {
	runner := New(cfg)
	var waiting []*opened
	for _, o := range cfg.Opened.all() {
		if o.waits() {
			waiting = append(waiting, o)
		}
	}
	if len(waiting) == 0 || cfg.Confirm != nil && cfg.Confirm(ctx) != nil {
		return
	}
	announce(ctx)
	var group errgroup.Group
	group.SetLimit(owedAtOnce)
	for _, o := range waiting {
		group.Go(func() error {
			runner.early(ctx, o)
			return nil
		})
	}
	_ = group.Wait() // none returns an error
}

// waits reports whether a pre hook of the Pod began, and its post hooks have not all run. It waits for
// a hook that runs.
func (o *opened) waits() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed && !o.early && len(o.ends) < len(o.pod.Post)
}

// early runs the post hooks of a Pod that have not run.
func (r *Runner) early(ctx context.Context, o *opened) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Log.WarnContext(ctx, "post hooks run early", "namespace", o.pod.Namespace, "pod", o.pod.Name)
	p := r.Owed(&o.pod)
	for i := range p.hooks.Post {
		if _, ended := o.ends[i]; ended {
			continue
		}
		e := &p.hooks.Post[i]
		failure := r.run(ctx, p, e, e.Container, checkpoint.HookPost)
		if failure != nil && ctx.Err() != nil {
			return // how it ended is not known
		}
		o.ends[i] = failure
	}
	o.early, o.entries = true, p.Entries()
}
