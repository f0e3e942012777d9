package podhook

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// ErrEarly is what is wrong with the backup of a Pod whose post hooks ran before what they follow.
var ErrEarly = errors.New("the bucket did not answer while the pod was between its hooks: its post hooks ran before it was backed up")

// Early runs the post hooks of all Pods that are between their hooks, without a record of each: what
// lies between the hooks, or the record that they run, waits for too long. A pre hook that runs is
// waited for, and no other one of these Pods runs afterwards.
func (r *Runner) Early(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(owedAtOnce)
	for _, o := range r.Opened.all() {
		group.Go(func() error {
			r.early(ctx, o)
			return nil
		})
	}
	_ = group.Wait() // none returns an error
}

// early runs the post hooks of a Pod of which a pre hook began.
func (r *Runner) early(ctx context.Context, o *opened) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.early || !o.changed || !r.mayRunEarly(ctx) {
		return
	}
	r.Log.WarnContext(ctx, "post hooks run early", "namespace", o.pod.Namespace, "pod", o.pod.Name)
	p := r.Owed(&o.pod)
	for i := range p.hooks.Post {
		h := checkpoint.Hook{Pod: o.pod.Object, Phase: checkpoint.HookPost, Index: i}
		if out, _ := r.Past.Ran(h); out != nil {
			continue
		}
		if _, ended := o.ends[i]; ended {
			continue
		}
		e := &p.hooks.Post[i]
		failure := r.run(ctx, p, e, e.Container, h.Phase)
		if failure != nil && ctx.Err() != nil {
			return
		}
		o.ends[i] = failure
	}
	o.early, o.entries = true, p.Entries()
}

// mayRunEarly reports whether this process holds the backup, and announces that post hooks run early.
// They run also where that fails.
func (r *Runner) mayRunEarly(ctx context.Context) bool {
	if r.Confirm != nil && r.Confirm(ctx) != nil {
		return false
	}
	r.announcing.Lock()
	defer r.announcing.Unlock()
	if r.announced || r.AnnounceEarly == nil {
		return true
	}
	err := r.AnnounceEarly(ctx)
	if r.announced = err == nil; err != nil {
		r.Log.WarnContext(ctx, "that post hooks run early is not known to later holders", "error", err)
	}
	return true
}
