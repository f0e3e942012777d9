package job

import (
	"context"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// open returns the store of the backup's location. The API server is waited for while the claim lasts, the bucket only for
// the configured patience: what looks like the network may be for ever, such as a wrong name or an unknown certificate.
func (j *job) open(ctx context.Context, name string) (store objectstore.Store, err error) {
	var since time.Time // the first failure of the bucket
	err = j.retry(ctx, "open the backup's location", func() error {
		if err := j.wanted(ctx); err != nil {
			return err
		}
		loc, err := j.cfg.Locations.Get(ctx, name)
		if err != nil {
			return j.unlessAway(err, "open the backup's location")
		}
		store, err = j.cfg.Locations.Open(ctx, loc)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if since.IsZero() {
			since = j.cfg.Clock.Now()
		}
		if !transient(err) || j.cfg.Clock.Since(since) > j.cfg.StorePatience {
			return fatal("open the backup's location %q: %w", name, err)
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return store, err
}

// wanted fails when the restore is being deleted or no longer ours; nobody else looks before its items are restored.
func (j *job) wanted(ctx context.Context) error {
	return j.update(ctx, func(o *velerov1.Restore) error {
		if o.DeletionTimestamp != nil {
			return errDeleted
		}
		return kube.ErrSkip
	})
}
