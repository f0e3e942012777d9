package finalize

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// sweepParts removes parts, sidecars and records. The backup has its phase already, so
// that nothing waits for it, and no other holder comes after this one: what is left here, whatever
// the reason, is removed by the sweep of leftovers in the deletion service.
func sweepParts(ctx context.Context, s *State) error {
	failpoint.Hit("backup-runner/before-sweep")
	err := RemoveAll(ctx, s.Store, layout.PartsPrefix(s.Backup.Name, string(s.Backup.UID)), func(string) (bool, error) {
		failpoint.Hit("backup-runner/sweep")
		return true, nil
	})
	if err != nil {
		s.Log.WarnContext(ctx, "Failed to delete the parts of the backup; the deletion service removes them", "error", err)
		return nil
	}
	failpoint.Hit("backup-runner/swept")
	return nil
}

// removals is how many objects are removed at once.
const removals = 16

// RemoveAll deletes the objects under a prefix for which may returns true, which are all but a few;
// its error ends the removal. may is called right before the deletion, from several goroutines.
func RemoveAll(ctx context.Context, store objectstore.Store, prefix string, may func(key string) (bool, error)) error {
	for {
		keys, err := firstKeys(ctx, store, prefix)
		if err != nil {
			return err
		}
		err = panics.ForEach(ctx, removals, len(keys), func(ctx context.Context, i int) error {
			if ok, err := may(keys[i]); err != nil || !ok {
				return err
			}
			if err := store.Delete(ctx, keys[i]); err != nil {
				return fmt.Errorf("remove %s: %w", keys[i], err)
			}
			return nil
		})
		if err != nil || len(keys) < sweepBatch {
			return err
		}
	}
}

const sweepBatch = 1000

// firstKeys returns the first keys under a prefix: a store may not like to be changed while it lists.
func firstKeys(ctx context.Context, store objectstore.Reader, prefix string) ([]string, error) {
	var keys []string
	err := store.List(ctx, prefix, func(info objectstore.Info) error {
		if keys = append(keys, info.Key); len(keys) == sweepBatch {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	return keys, nil
}
