package collect

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// act processes what is held and makes everything durable.
func (r *run) act(ctx context.Context, workers []*worker) error {
	if !r.bound.any() || r.bound.register.Open()+len(r.past.held) == 0 {
		return nil
	}
	if err := r.load(ctx); err != nil {
		return err
	}
	if r.bound.register.Pending() == 0 {
		return nil
	}
	if err := r.blocks(ctx, workers[:r.BlockWorkers]); err != nil {
		return err
	}
	return r.settle(ctx, workers)
}

// blocks lets the workers process everything that is held, and returns when it is
// done, or when the run is told to stop.
func (r *run) blocks(ctx context.Context, workers []*worker) error {
	group, ctx := errgroup.WithContext(ctx)
	queue := make(chan block)
	group.Go(func() error {
		defer close(queue)
		return r.safely(func() error { return (&arranger{run: r}).arrange(ctx, queue) })
	})
	for _, w := range workers {
		group.Go(func() error {
			return r.safely(func() error { return (&actor{worker: w}).work(ctx, queue) })
		})
	}
	err := group.Wait()
	if r.stopping() && errors.Is(err, ErrStopped) {
		return nil
	}
	return err
}

// work processes blocks. One that ends because the run was told to stop does not cut
// short what the other workers are at.
func (a *actor) work(ctx context.Context, queue <-chan block) error {
	for b := range queue {
		err := a.block(ctx, b)
		if err != nil && !(a.run.stopping() && errors.Is(err, ErrStopped)) {
			return fmt.Errorf("process what waits for actions: %w", err)
		}
	}
	return nil
}

// block processes a block, all of which goes into one part: what actions relate to
// an object may be known through that object alone, which a later holder does not
// process again.
func (a *actor) block(ctx context.Context, b block) error {
	if a.run.stopping() {
		return nil
	}
	for i := range b.members {
		err := context.Cause(ctx)
		if err == nil {
			err = a.member(ctx, &b.members[i])
		}
		if err == nil {
			err = a.catchUp(ctx)
		}
		if err != nil {
			if i > 0 || len(a.later) > 0 {
				a.abandon()
			}
			return err
		}
	}
	if a.full() {
		return a.seal()
	}
	return nil
}

// abandon drops the open part, with the beginning of a block in it.
func (a *actor) abandon() {
	if a.open != nil {
		a.open.Discard()
		a.open = nil
	}
	a.noted, a.record, a.namespaces = false, checkpoint.Record{}, nil
}
