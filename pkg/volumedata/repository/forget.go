package repository

import (
	"context"
	"errors"
	"fmt"

	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/repo/manifest"
	"github.com/kopia/kopia/snapshot"
)

// ForgetSnapshots removes snapshots, whatever pins them; one that is not there counts as forgotten. What no
// other snapshot uses stays in the bucket until the repository is maintained.
func (r *Repository) ForgetSnapshots(ctx context.Context, ids []string) error {
	return r.Write(ctx, "forget snapshots", func(ctx context.Context, w repo.RepositoryWriter) error {
		for _, id := range ids {
			switch _, err := snapshot.LoadSnapshot(ctx, w, manifest.ID(id)); { // nothing but snapshots is removed
			case errors.Is(err, snapshot.ErrSnapshotNotFound):
				continue
			case err != nil:
				return ReadError(ctx, fmt.Errorf("snapshot %s: %w", id, err))
			}
			if err := w.DeleteManifest(ctx, manifest.ID(id)); err != nil && !errors.Is(err, manifest.ErrNotFound) {
				return fmt.Errorf("snapshot %s: %w", id, err)
			}
		}
		return nil
	})
}
