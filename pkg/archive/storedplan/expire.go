package storedplan

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// unfinished is how old rows without a header must be: whoever wrote them has ended by then.
const unfinished = 24 * time.Hour

// List calls do for the header of every plan of a location, with its id, or with the error of reading it.
func List(ctx context.Context, store objectstore.Reader, do func(id string, h *Header, err error) error) error {
	dirs, err := store.ListPrefixes(ctx, layout.PlansDir)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		id := strings.TrimSuffix(dir, "/")
		h, err := ReadHeader(ctx, store, id)
		if err := do(id, h, err); err != nil {
			return err
		}
	}
	return nil
}

// DeleteExpired removes the plans that have expired, those that cannot be read, and those whose
// writer ended in the middle, and returns how many files were removed.
func DeleteExpired(ctx context.Context, store objectstore.Store, now time.Time) (files int, err error) {
	err = List(ctx, store, func(id string, h *Header, err error) error {
		switch {
		case err == nil && now.Before(h.Expires):
			return nil
		case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt):
			return err
		case errors.Is(err, ErrNotFound):
			if recent, err := isRecent(ctx, store, id, now); recent || err != nil {
				return err
			}
		}
		for _, key := range []string{layout.PlanHeader(id), layout.PlanRows(id)} {
			if err := store.Delete(ctx, key); err != nil {
				return err
			}
			files++
		}
		return nil
	})
	return files, err
}

// isRecent reports whether a plan without a header may still be in the making.
func isRecent(ctx context.Context, store objectstore.Reader, id string, now time.Time) (recent bool, err error) {
	err = store.List(ctx, layout.PlanDir(id), func(i objectstore.Info) error {
		if recent = now.Sub(i.ModTime) < unfinished; recent {
			return fs.SkipAll
		}
		return nil
	})
	return recent, err
}
