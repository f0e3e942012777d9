package maintain_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kopia/kopia/fs"
	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/snapshot"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// listSnapshots returns what the repository lists now, checkpoints too.
func (b *bed) listSnapshots(r *repository.Repository) []*snapshot.Manifest {
	b.t.Helper()
	require.NoError(b.t, r.Refresh(b.t.Context()))
	ids, err := snapshot.ListSnapshotManifests(b.t.Context(), r, nil, nil)
	require.NoError(b.t, err)
	found, err := snapshot.LoadSnapshots(b.t.Context(), r, ids)
	require.NoError(b.t, err)
	return found
}

// longUpload is the second upload of a volume, in the middle of which a test does what it likes.
type longUpload struct {
	*bed
	volume, first string // the directory, and the ID of the first snapshot
	other         *repository.Repository
}

func newLongUpload(t *testing.T) *longUpload {
	b := newBed(t)
	volume := b.newVolume(1 << 20)
	u := &longUpload{bed: b, volume: volume, first: b.upload(b.open(), volume, "data"), other: b.open()}
	b.pass(2)
	added, err := os.ReadFile(filepath.Join(b.newVolume(24<<20), "file")) // more than kopia keeps in memory
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(volume, "new"), added, 0o600))
	return u
}

// run runs the upload.
func (u *longUpload) run(ctx context.Context, during func()) outcome.Result {
	var begun atomic.Bool
	u.store.Inject(func(op memstore.Op, key string) error {
		// The upload has taken the file from the snapshot, and stores its own.
		if op == memstore.OpPut && strings.HasPrefix(key, "kopia/app/p") && !begun.Swap(true) {
			during()
			u.clock.Step(time.Minute) // of two changes at the same time kopia may take either
		}
		return nil
	})
	defer u.store.Inject(nil)
	result := u.runUpload(ctx, u.open(), u.volume, "data")
	require.True(u.t, begun.Load())
	return result
}

// awaitKept waits until the upload has kept its parent since the clock was set.
func (u *longUpload) awaitKept() {
	u.t.Helper()
	now := u.clock.Now()
	require.Eventually(u.t, func() bool {
		return slices.ContainsFunc(u.listSnapshots(u.other), func(m *snapshot.Manifest) bool {
			return m.IncompleteReason != "" && m.EndTime.ToTime().Equal(now)
		})
	}, time.Minute, 10*time.Millisecond)
}

// TestALongUploadKeepsItsParent checks that content which an upload of days takes over from a snapshot survives,
// although that snapshot is forgotten at its beginning, and that nothing but the upload's own snapshot is left.
func TestALongUploadKeepsItsParent(t *testing.T) {
	u := newLongUpload(t)
	result := u.run(t.Context(), func() {
		require.NoError(t, u.other.ForgetSnapshots(t.Context(), []string{u.first}))
		require.Empty(t, u.listSnapshots(u.other))
		u.clock.Step(repository.KeepInterval)
		u.awaitKept()
		for range 3 {
			u.passFull()
			u.awaitKept()
		}
		require.Len(t, u.listSnapshots(u.other), 1)
	})
	require.Equal(t, outcome.Completed, result.Phase, result.Message)
	left := u.listSnapshots(u.other)
	require.Len(t, left, 1)
	require.EqualValues(t, result.SnapshotID, left[0].ID)
	for range 4 {
		u.passFull()
	}
	u.requireRestored(result.SnapshotID, u.volume)
}

// TestACanceledUploadKeepsItsCheckpointAlone checks that the parent of an upload that ends without a snapshot is kept no
// longer.
func TestACanceledUploadKeepsItsCheckpointAlone(t *testing.T) {
	u := newLongUpload(t)
	ctx, cancel := context.WithCancel(t.Context())
	result := u.run(ctx, func() {
		u.clock.Step(repository.KeepInterval)
		u.awaitKept()
		cancel()
	})
	require.Equal(t, outcome.Canceled, result.Phase, result.Message)
	left := u.listSnapshots(u.other)
	require.Len(t, left, 2)
	for _, m := range left {
		require.Equal(t, string(m.ID) == u.first, len(m.Pins) > 0)
	}
}

// TestMaintenanceRemovesWhatUploadsLeft checks that what a killed mover left goes, but not while it may be of use, and
// that the repository of a removed namespace is found empty then.
func TestMaintenanceRemovesWhatUploadsLeft(t *testing.T) {
	b := newBed(t)
	r, source := b.open(), sourceOf("data")
	id := b.upload(r, b.newVolume(1<<20), "data")
	parents, err := r.Parents(t.Context(), source)
	require.NoError(t, err)
	require.Len(t, parents, 1)
	b.clock.Step(time.Minute)
	_, err = r.KeepParents(t.Context(), source, parents)
	require.NoError(t, err)
	require.NoError(t, r.Write(t.Context(), "test", func(ctx context.Context, w repo.RepositoryWriter) error {
		now := fs.UTCTimestampFromTime(b.clock.Now())
		return repository.SaveCheckpoint(ctx, w, source, &snapshot.Manifest{Source: source.Info(), EndTime: now, RootEntry: parents[0].RootEntry})
	}))
	require.NoError(t, r.ForgetSnapshots(t.Context(), []string{id}))
	b.clock.Step(13 * day)
	b.passFull()
	require.Len(t, b.listSnapshots(r), 2)
	b.passFull()
	require.Empty(t, b.listSnapshots(r))
	empty := false
	for range 6 {
		empty = empty || b.passFull().Empty
	}
	require.True(t, empty)
}
