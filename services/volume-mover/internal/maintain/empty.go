package maintain

import (
	"context"
	"errors"

	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/repo/blob"
	"github.com/kopia/kopia/repo/content"
	"github.com/kopia/kopia/repo/manifest"
	"github.com/kopia/kopia/snapshot"
)

// errLeft ends a walk at the first thing that is left.
var errLeft = errors.New("something is left")

// isEmpty reports whether a repository has no snapshot, and nothing that maintenance has yet to remove.
func isEmpty(ctx context.Context, direct repo.DirectRepository) (bool, error) {
	snapshots, err := snapshot.ListSnapshotManifests(ctx, direct, nil, nil)
	if err != nil || len(snapshots) > 0 {
		return false, err
	}
	err = direct.ContentReader().IterateContents(ctx, content.IterateOptions{IncludeDeleted: true}, func(i content.Info) error {
		if i.ContentID.Prefix() != manifest.ContentPrefix {
			return errLeft
		}
		return nil
	})
	if err == nil {
		err = repo.DirectWriteSession(ctx, direct, repo.WriteSessionOptions{Purpose: "look for unused packs"}, func(ctx context.Context, w repo.DirectRepositoryWriter) error {
			return w.ContentManager().IterateUnreferencedPacks(ctx, content.PackBlobIDPrefixes, 1, func(blob.Metadata) error { return errLeft })
		})
	}
	if errors.Is(err, errLeft) {
		return false, nil
	}
	return err == nil, err
}
