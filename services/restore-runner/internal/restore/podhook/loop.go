package podhook

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
)

const (
	// tick is the time between two checks for Pods that are due.
	tick = 250 * time.Millisecond
	// perTick bounds the Pods that are read in a tick, and with it the requests of a restore with
	// many hooks: 48 a second.
	perTick = 12
	// maxBusy bounds the Pods in which hooks run at once.
	maxBusy = 64
	// firstPause and longPause bound the time between two reads of a Pod, which doubles.
	firstPause = 250 * time.Millisecond
	longPause  = 5 * time.Second
)

// Start begins to read Pods and to run hooks. The function that it returns ends that: hooks that run
// are cut off, unless the restore is to stop, when they run until ctx ends.
func (r *Runner) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	r.group.Go(func() { r.servePods(ctx) })
	hide := r.Recorder.ShowWaits(r.listWaits)
	return func() {
		defer hide()
		if !r.Stop.Requested() {
			cancel()
		}
		r.group.Wait()
		cancel()
		_ = panics.Raise(r.panicked) // panics or returns nil: panicked is no other error
	}
}

// Wait returns when no Pod owes a hook any more, or with the cause of ctx's end, or with
// dispatch.ErrStopped.
func (r *Runner) Wait(ctx context.Context) error {
	for {
		r.mu.Lock()
		n, left, panicked := len(r.pods), r.left, r.panicked
		r.mu.Unlock()
		if n == 0 || panicked != nil {
			return panics.Raise(panicked)
		}
		select {
		case <-left:
		case <-r.Stop:
			return dispatch.ErrStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// servePods visits the Pods that are due, until ctx ends or the restore is to stop.
func (r *Runner) servePods(ctx context.Context) {
	for {
		r.visitDuePods(ctx)
		var turn <-chan time.Time
		timer := r.Clock.NewTimer(tick)
		if r.hasPods() {
			turn = timer.C()
		}
		select {
		case <-turn:
		case <-r.news:
		case <-r.Stop:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil || r.Stop.Requested() {
			return
		}
	}
}

func (r *Runner) hasPods() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pods) > 0
}

// visitDuePods begins to visit the Pods that are due, those due for longest first.
func (r *Runner) visitDuePods(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.panicked != nil {
		return
	}
	now := r.Clock.Now()
	var due []*hookedPod
	busy := 0
	for _, p := range r.pods {
		switch {
		case p.busy:
			busy++
		case !now.Before(p.next):
			due = append(due, p)
		}
	}
	slices.SortFunc(due, func(a, b *hookedPod) int { return cmp.Or(a.next.Compare(b.next), cmp.Compare(a.Node, b.Node)) })
	for _, p := range due[:max(0, min(len(due), perTick, maxBusy-busy))] {
		p.busy = true
		r.group.Go(func() { r.visitPod(ctx, p) })
	}
}

// visitPod reads a Pod and runs the hooks that can be run. A panic is one of Wait.
func (r *Runner) visitPod(ctx context.Context, p *hookedPod) {
	again := false
	panicked := panics.Catch(func() error {
		if r.Recorder.Room(ctx) == nil {
			again = r.advanceHooks(ctx, p)
		}
		return nil
	})
	if panicked != nil {
		r.notePanic(panicked)
		return
	}
	r.scheduleNext(p, again)
}

// notePanic ends the wait for hooks.
func (r *Runner) notePanic(panicked error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.panicked == nil {
		r.panicked = panicked
		close(r.left)
		r.left = make(chan struct{})
	}
}

// scheduleNext sets when a Pod is due again; one without a hook left is dropped.
func (r *Runner) scheduleNext(p *hookedPod, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.busy = false
	if p.Left() == 0 {
		delete(r.pods, p.Node)
		close(r.left)
		r.left = make(chan struct{})
		return
	}
	now := r.Clock.Now()
	p.pause = min(max(2*p.pause, firstPause), longPause)
	p.next = now.Add(p.pause)
	if deadline := r.firstDeadline(p); now.Before(deadline) && deadline.Before(p.next) {
		p.next = deadline
	}
	if again {
		p.pause, p.next = 0, now
		r.wakeServe()
	}
}
