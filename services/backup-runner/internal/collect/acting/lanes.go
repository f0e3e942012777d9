package acting

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// maxHooked is how many blocks are between their first pre hook and their last post hook at once,
// in one backup, and never more than it has workers: a block that waits for a worker there stands
// still for as long as the actions of others take.
const maxHooked = 8

// hookScheduler bring blocks to workers. The hooks of a block run beside the workers, so that no block
// without hooks waits for them.
type hookScheduler struct {
	pool   *Pool
	group  *panics.Group
	plain  chan Block        // without hooks
	ready  chan *hookedBlock // whose pre hooks have run
	ended  chan *hookedBlock // whose post hooks have run
	places chan struct{}     // holds a value for each block that is between its hooks
	done   chan struct{}     // closed once no block with hooks is left
}

// hookedBlock is a block with hooks.
type hookedBlock struct {
	Block
	left bool // to the next holder, since the run is stopped before the post hooks
}

func newLanes(p *Pool, group *panics.Group, workers int) *hookScheduler {
	return &hookScheduler{
		pool: p, group: group, plain: make(chan Block), ready: make(chan *hookedBlock), ended: make(chan *hookedBlock),
		places: make(chan struct{}, min(maxHooked, workers)), done: make(chan struct{}),
	}
}

// dispatchBlocks sends blocks without hooks to the workers, and begins those with hooks, as many at once as
// there are places. Neither waits for the other.
func (l *hookScheduler) dispatchBlocks(ctx context.Context, queue <-chan Block) error {
	var next *Block
	var waiting []*hookedBlock
	for queue != nil || next != nil || len(waiting) > 0 {
		in, plain, place := queue, chan<- Block(nil), chan<- struct{}(nil)
		var send Block
		if next != nil {
			in, plain, send = nil, l.plain, *next
		}
		if len(waiting) > 0 {
			place = l.places
		}
		select {
		case b, ok := <-in:
			switch {
			case !ok:
				queue = nil
			case len(b.Hooks) > 0:
				waiting = append(waiting, &hookedBlock{Block: b})
			default:
				next = &b
			}
		case plain <- send:
			next = nil
		case place <- struct{}{}:
			l.runPreHooks(ctx, waiting[0])
			waiting = waiting[1:]
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	close(l.plain)
	return l.awaitHooked(ctx)
}

// awaitHooked waits until no block is between its hooks.
func (l *hookScheduler) awaitHooked(ctx context.Context) error {
	for range cap(l.places) {
		select {
		case l.places <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	close(l.done)
	return nil
}

// runPreHooks runs the pre hooks of a block.
func (l *hookScheduler) runPreHooks(ctx context.Context, h *hookedBlock) {
	if len(h.Members) == 0 {
		l.runPostHooks(ctx, h)
		return
	}
	l.group.Go(func() error { return l.runPodHooks(ctx, h, l.ready, l.pool.Hooks.Pre) })
}

// runPostHooks runs the post hooks of a block, once the data of the volumes of its Pods is taken.
func (l *hookScheduler) runPostHooks(ctx context.Context, h *hookedBlock) {
	l.group.Go(func() error {
		done, err := l.awaitPodVolumes(ctx, h)
		switch {
		case err != nil:
			return fmt.Errorf("wait for the data of Pods: %w", err)
		case !done:
			h.left = true
			return l.sendHooked(ctx, h, l.ended)
		}
		return l.runPodHooks(ctx, h, l.ended, l.pool.Hooks.Post)
	})
}

// awaitPodVolumes waits for the file-system backups of the Pods of a block. False means that the run
// is stopped before.
func (l *hookScheduler) awaitPodVolumes(ctx context.Context, h *hookedBlock) (bool, error) {
	var pods []types.NamespacedName
	for _, pod := range h.Hooks {
		if pod.HasPostHooks() {
			named := pod.Item()
			pods = append(pods, types.NamespacedName{Namespace: named.Namespace, Name: named.Name})
		}
	}
	if l.pool.PodVolumes == nil || len(pods) == 0 {
		return true, nil
	}
	return l.pool.PodVolumes.Await(ctx, l.pool.Stop, pods)
}

// runPodHooks runs hooks of the Pods of a block, beside everything else, and hands the block on. When the
// run is stopped a block that is not processed yet is left to the next holder, with its post hooks.
func (l *hookScheduler) runPodHooks(ctx context.Context, h *hookedBlock, to chan<- *hookedBlock, run func(context.Context, *podhook.Pod) error) error {
	for _, pod := range h.Hooks {
		if l.pool.Stop.Requested() && to == l.ready {
			break
		}
		if err := run(ctx, pod); err != nil {
			return fmt.Errorf("run hooks: %w", err)
		}
	}
	return l.sendHooked(ctx, h, to)
}

// sendHooked hands a block on.
func (l *hookScheduler) sendHooked(ctx context.Context, h *hookedBlock, to chan<- *hookedBlock) error {
	select {
	case to <- h:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// processBlocks processes blocks; those between their hooks first. One that ends because the run is stopped
// does not cut short the other workers.
func (a *objectProcessor) processBlocks(ctx context.Context, l *hookScheduler) error {
	plain, done := l.plain, l.done
	for plain != nil || done != nil {
		var err error
		select {
		case h := <-l.ended:
			err = a.noteHooksEnded(l, h)
		case h := <-l.ready:
			err = a.processHooked(ctx, l, h)
		default:
			select {
			case h := <-l.ended:
				err = a.noteHooksEnded(l, h)
			case h := <-l.ready:
				err = a.processHooked(ctx, l, h)
			case b, ok := <-plain:
				if !ok {
					plain = nil
					continue
				}
				err = a.processBlock(ctx, &b)
			case <-done:
				done = nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err != nil && !a.pool.isStopError(err) {
			return fmt.Errorf("process what waits for actions: %w", err)
		}
	}
	return nil
}

// processHooked processes a block whose pre hooks have run, and has its post hooks run.
func (a *objectProcessor) processHooked(ctx context.Context, l *hookScheduler, h *hookedBlock) error {
	if a.pool.Stop.Requested() {
		<-l.places
		return nil
	}
	a.hooks, a.own = map[itemset.Key]*podhook.Pod{}, map[itemset.Key]struct{}{}
	defer func() { a.hooks, a.own = nil, nil }()
	for _, pod := range h.Hooks {
		a.hooks[pod.Key] = pod
	}
	for i := range h.Members {
		a.own[h.Members[i].Key] = struct{}{}
	}
	err := a.processBlock(ctx, &h.Block)
	if err != nil || a.pool.Items.Result(h.Members[0].Key) == itemset.Waiting { // stopped
		<-l.places
		return err
	}
	if err := a.snapshotVolumes(ctx, h); err != nil {
		<-l.places
		return err
	}
	failpoint.Hit("backup-runner/hooked-block-processed")
	l.runPostHooks(ctx, h)
	return nil
}

// noteHooksEnded notes that all hooks of a block have ended.
func (a *objectProcessor) noteHooksEnded(l *hookScheduler, h *hookedBlock) error {
	<-l.places
	if h.left {
		return nil
	}
	for _, pod := range h.Hooks {
		if err := a.noteHookMessages(pod); err != nil {
			return err
		}
		a.out.Record.HooksEnded = append(a.out.Record.HooksEnded, pod.Ended())
	}
	if a.out.Full() {
		return a.out.Seal()
	}
	return nil
}

// noteHookMessages notes the messages of hooks.
func (a *objectProcessor) noteHookMessages(pod *podhook.Pod) error {
	for _, e := range pod.Entries() {
		if err := a.out.LogEntry(e); err != nil {
			return err
		}
	}
	return nil
}

// isInHookedBlock reports whether an object has a turn of its own, in a block with hooks.
func (a *objectProcessor) isInHookedBlock(key itemset.Key) bool {
	if a.pool.Reserved == nil {
		return false
	}
	_, own := a.own[key]
	return !own && a.pool.Reserved(key)
}
