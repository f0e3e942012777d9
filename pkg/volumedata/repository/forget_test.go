package repository_test

import (
	"context"
	"testing"

	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/snapshot"
	"github.com/kopia/kopia/snapshot/policy"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
)

// TestForgetSnapshots checks that the named snapshots go, pinned as they are, for whoever opens the repository
// after that, and that nothing else does.
func TestForgetSnapshots(t *testing.T) {
	location := memstore.New()
	r := mustCreate(t, location)
	source := repository.Source{Requester: repository.PodVolume, Namespace: "app", Pod: "web-0", Volume: "data"}
	var ids []string
	require.NoError(t, r.Write(t.Context(), "test", func(ctx context.Context, w repo.RepositoryWriter) error {
		for range 3 {
			id, err := r.SaveSnapshot(ctx, w, source, &snapshot.Manifest{Source: source.Info(), RootEntry: &snapshot.DirEntry{}})
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return repository.SavePolicy(ctx, w, source)
	}))
	require.NoError(t, r.ForgetSnapshots(t.Context(), []string{ids[0], "00", ids[2]}))
	require.NoError(t, r.ForgetSnapshots(t.Context(), ids[:1]), "again")

	left, err := snapshot.ListSnapshotManifests(t.Context(), mustCreate(t, location), nil, nil)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.EqualValues(t, ids[1], left[0])

	other, err := policy.GetDefinedPolicy(t.Context(), r, source.Info())
	require.NoError(t, err)
	require.Error(t, r.ForgetSnapshots(t.Context(), []string{other.ID()}), "it is no snapshot")
	_, err = policy.GetDefinedPolicy(t.Context(), r, source.Info())
	require.NoError(t, err)
}
