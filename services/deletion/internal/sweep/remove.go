package sweep

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// remove deletes objects and asks in between whether they are leftovers still: a process that was
// paused must not go on with what it knew before.
func (p *pass) remove(ctx context.Context, infos []objectstore.Info, leftover still) (bool, error) {
	for len(infos) > 0 {
		asked := p.Clock.Now()
		if ok, err := leftover(ctx); !ok || err != nil {
			return false, err
		}
		failpoint.Hit("deletion/sweep-before-objects")
		group, gctx := errgroup.WithContext(ctx)
		group.SetLimit(parallel)
		var removed, bytes atomic.Int64
		n := 0
		for ; n < min(step, len(infos)) && p.Clock.Since(asked) < fresh && gctx.Err() == nil; n++ {
			info := infos[n]
			group.Go(func() error {
				if err := p.store.Delete(gctx, info.Key); err != nil {
					return err
				}
				removed.Add(1)
				bytes.Add(info.Size)
				failpoint.Hit("deletion/sweep-object-removed")
				return nil
			})
		}
		err := group.Wait()
		p.count.objects += removed.Load()
		p.count.bytes += bytes.Load()
		if err != nil {
			return false, err
		}
		infos = infos[n:]
	}
	return true, nil
}

// removeOwner deletes the file that says whose a directory is, which is empty but for it.
func (p *pass) removeOwner(ctx context.Context, key string, leftover still) error {
	failpoint.Hit("deletion/sweep-before-owner")
	info, err := p.store.Stat(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil // another replica was first
	}
	if err != nil {
		return err
	}
	_, err = p.remove(ctx, []objectstore.Info{info}, leftover)
	return err
}
