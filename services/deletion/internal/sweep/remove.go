package sweep

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// keyPage is how many keys are held at once.
	keyPage = 1000
	// maxUnchecked is how many objects are removed at most until it is checked again whether they are leftovers,
	// and maxCheckAge after how much time it is.
	maxUnchecked = 100
	maxCheckAge  = 2 * time.Second
	// parallelDeletes is how many objects are removed at once.
	parallelDeletes = 16
)

// leftoverCheck reports, from uncached reads, whether something is a leftover now.
type leftoverCheck func(context.Context) (bool, error)

// leftoverRemover removes leftovers from the bucket of a location.
type leftoverRemover struct {
	store objectstore.Store
	clock clock.PassiveClock
	log   *slog.Logger
	count *passCounts
}

// emptyPrefix removes everything under prefix but the object keep; false means that it is, or may be, in
// use.
func (r *leftoverRemover) emptyPrefix(ctx context.Context, prefix, keep string, leftover leftoverCheck) (bool, error) {
	for {
		var infos []objectstore.Info
		err := r.store.List(ctx, prefix, func(i objectstore.Info) error {
			if i.Key != keep {
				infos = append(infos, i)
			}
			if len(infos) == keyPage {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil || len(infos) == 0 {
			return err == nil, err
		}
		if ok, err := r.removeObjects(ctx, infos, leftover); !ok || err != nil {
			return false, err
		}
	}
}

// removeObjects deletes objects and checks in between whether they are leftovers still: a process that was
// paused must not go on with what it knew before.
func (r *leftoverRemover) removeObjects(ctx context.Context, infos []objectstore.Info, leftover leftoverCheck) (bool, error) {
	for len(infos) > 0 {
		checked := r.clock.Now()
		if ok, err := leftover(ctx); !ok || err != nil {
			return false, err
		}
		failpoint.Hit("deletion/sweep-before-objects")
		group, gctx := panics.NewGroup(ctx)
		group.SetLimit(parallelDeletes)
		var removed, bytes atomic.Int64
		n := 0
		for ; n < min(maxUnchecked, len(infos)) && r.clock.Since(checked) < maxCheckAge && gctx.Err() == nil; n++ {
			info := infos[n]
			group.Go(func() error {
				if err := r.store.Delete(gctx, info.Key); err != nil {
					return err
				}
				removed.Add(1)
				bytes.Add(info.Size)
				failpoint.Hit("deletion/sweep-object-removed")
				return nil
			})
		}
		err := group.Wait()
		r.count.objects += removed.Load()
		r.count.bytes += bytes.Load()
		if err != nil {
			return false, err
		}
		infos = infos[n:]
	}
	return true, nil
}

// removeOwner deletes the owner file of a directory that has no other objects.
func (r *leftoverRemover) removeOwner(ctx context.Context, key string, leftover leftoverCheck) error {
	failpoint.Hit("deletion/sweep-before-owner")
	info, err := r.store.Stat(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil // another replica was first
	}
	if err != nil {
		return err
	}
	_, err = r.removeObjects(ctx, []objectstore.Info{info}, leftover)
	return err
}

// abortUploads ends the unfinished uploads under prefix that are abandoned.
func (r *leftoverRemover) abortUploads(ctx context.Context, prefix string, abandoned func(objectstore.Upload) (bool, error)) error {
	n, err := objectstore.SweepUploads(ctx, r.store, prefix, abandoned)
	r.count.uploads += int64(n)
	if errors.Is(err, objectstore.ErrAccess) {
		r.log.Info("No permission to list or abort unfinished uploads; a lifecycle rule of the bucket should end them", "error", err)
		return nil
	}
	return err
}
