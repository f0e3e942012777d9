package repository_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/kopia/kopia/fs"
	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/snapshot"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
)

// TestParents checks from which snapshots an upload takes unchanged files.
func TestParents(t *testing.T) {
	pod := func(pod, uid string) repository.Source {
		return repository.Source{Requester: repository.PodVolume, Namespace: "app", Pod: pod, Volume: "data", ClaimUID: uid}
	}
	moved := repository.Source{Requester: repository.DataUpload, Namespace: "app", Volume: "data", ClaimUID: "1"}
	r := mustCreate(t, memstore.New())
	type stored struct {
		source     repository.Source
		minute     int
		checkpoint bool
	}
	for name, c := range map[string]struct {
		stored []stored
		source repository.Source
		want   []int // minutes
	}{
		"the latest of the claim":               {[]stored{{pod("web-a", "1"), 1, false}, {pod("web-b", "1"), 2, false}}, pod("web-c", "1"), []int{2}},
		"the claim before the path":             {[]stored{{pod("web-a", "1"), 1, false}, {pod("web-b", ""), 2, false}}, pod("web-b", "1"), []int{1}},
		"the path, as Velero stored it":         {[]stored{{pod("web-a", ""), 1, false}, {pod("web-a", ""), 2, false}}, pod("web-a", "1"), []int{2}},
		"not of another claim of that name":     {[]stored{{pod("web-a", "1"), 1, false}}, pod("web-a", "2"), nil},
		"not of another path":                   {[]stored{{pod("web-a", ""), 1, false}}, pod("web-b", "1"), nil},
		"not of another requester":              {[]stored{{moved, 1, false}}, pod("web-a", "1"), nil},
		"without a claim by path":               {[]stored{{pod("web-a", ""), 1, false}}, pod("web-a", ""), []int{1}},
		"newer checkpoints besides":             {[]stored{{pod("web-a", "1"), 1, true}, {pod("web-a", "1"), 2, false}, {pod("web-b", "1"), 3, true}}, pod("web-c", "1"), []int{2, 3}},
		"checkpoints alone":                     {[]stored{{pod("web-a", ""), 1, true}}, pod("web-a", "1"), []int{1}},
		"no checkpoint of another claim":        {[]stored{{pod("web-a", "2"), 1, true}}, pod("web-a", "1"), nil},
		"of moved snapshots whatever operation": {[]stored{{moved, 1, false}}, repository.Source{Requester: repository.DataUpload, Namespace: "app", Volume: "data", ClaimUID: "1", OperationID: "o"}, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Date(2026, 5, 20, 8, 0, 0, 0, time.UTC)
			require.NoError(t, r.Write(t.Context(), "test", func(ctx context.Context, w repo.RepositoryWriter) error {
				for _, s := range c.stored {
					s.source.Namespace = t.Name() // cases do not see each other's
					m := &snapshot.Manifest{
						Source: s.source.Info(), StartTime: fs.UTCTimestampFromTime(start.Add(time.Duration(s.minute) * time.Minute)), RootEntry: &snapshot.DirEntry{Type: snapshot.EntryTypeDirectory},
					}
					var err error
					if s.checkpoint {
						err = repository.SaveCheckpoint(ctx, w, s.source, m)
					} else {
						m.Tags = s.source.Tags()
						_, err = snapshot.SaveSnapshot(ctx, w, m)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}))
			c.source.Namespace = t.Name()
			found, err := r.Parents(t.Context(), c.source)
			require.NoError(t, err)
			var got []int
			for _, m := range found {
				got = append(got, m.StartTime.ToTime().Minute())
			}
			slices.Sort(got[min(1, len(got)):])
			require.Equal(t, c.want, got)
		})
	}
}

// TestTheLastCheckpointOfAnUploadIsAParent checks that the hundreds of checkpoints of an upload of days are no hundreds of
// parents.
func TestTheLastCheckpointOfAnUploadIsAParent(t *testing.T) {
	r := mustCreate(t, memstore.New())
	source := repository.Source{Requester: repository.PodVolume, Namespace: "app", Pod: "web-0", Volume: "data", ClaimUID: "1"}
	start := time.Date(2026, 5, 20, 8, 0, 0, 0, time.UTC)
	require.NoError(t, r.Write(t.Context(), "test", func(ctx context.Context, w repo.RepositoryWriter) error {
		for _, c := range []struct{ start, end int }{{20, 25}, {0, 5}, {0, 15}, {0, 10}} { // minutes
			if err := repository.SaveCheckpoint(ctx, w, source, &snapshot.Manifest{
				Source: source.Info(), RootEntry: &snapshot.DirEntry{Type: snapshot.EntryTypeDirectory},
				StartTime: fs.UTCTimestampFromTime(start.Add(time.Duration(c.start) * time.Minute)),
				EndTime:   fs.UTCTimestampFromTime(start.Add(time.Duration(c.end) * time.Minute)),
			}); err != nil {
				return err
			}
		}
		return nil
	}))
	parents, err := r.Parents(t.Context(), source)
	require.NoError(t, err)
	var ends []int
	for _, p := range parents {
		ends = append(ends, p.EndTime.ToTime().Minute())
	}
	require.Equal(t, []int{15, 25}, ends)
}

// TestSaveSnapshot checks the manifest that Velero reads, and that a complete snapshot ends its checkpoints.
func TestSaveSnapshot(t *testing.T) {
	r := mustCreate(t, memstore.New())
	source := repository.Source{Requester: repository.PodVolume, Namespace: "app", Pod: "web-0", Volume: "data", ClaimUID: "1"}
	earlier := source
	earlier.Pod = "web-1"
	var id string
	require.NoError(t, r.Write(t.Context(), "test", func(ctx context.Context, w repo.RepositoryWriter) error {
		for _, s := range []repository.Source{source, earlier} {
			if err := repository.SaveCheckpoint(ctx, w, s, &snapshot.Manifest{Source: s.Info(), RootEntry: &snapshot.DirEntry{}}); err != nil {
				return err
			}
		}
		if err := repository.SavePolicy(ctx, w, source); err != nil {
			return err
		}
		var err error
		id, err = r.SaveSnapshot(ctx, w, source, &snapshot.Manifest{Source: source.Info(), RootEntry: &snapshot.DirEntry{}})
		return err
	}))
	m, err := r.LoadSnapshot(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, snapshot.SourceInfo{Host: "default", UserName: "default", Path: "snapshot-pod-volume/kopia/app/web-0/data"}, m.Source)
	require.Equal(t, map[string]string{"snapshot-requester": "snapshot-pod-volume", "snapshot-uploader": "kopia", "holdfast.io/claim-uid": "1"}, m.Tags)
	require.Equal(t, []string{"velero-pin"}, m.Pins)
	require.Equal(t, "Kopia Uploader", m.Description)
	ids, err := snapshot.ListSnapshotManifests(t.Context(), r, nil, nil)
	require.NoError(t, err)
	require.Len(t, ids, 1)

	moved := repository.Source{Requester: repository.DataUpload, Namespace: "app", Volume: "data", OperationID: "du-1"}
	require.Equal(t, "snapshot-data-upload-download/kopia/app/data", moved.Info().Path)
	require.Equal(t, "du-1", moved.Tags()["velero.io/async-operation-id"])
	_, err = r.LoadSnapshot(t.Context(), "00")
	require.ErrorIs(t, err, repository.ErrNoSnapshot)
}

// TestUploadPolicy checks that more files may be read at once than there are CPUs.
func TestUploadPolicy(t *testing.T) {
	require.Equal(t, 300, repository.UploadPolicy(300).EffectivePolicy().UploadPolicy.MaxParallelFileReads.OrDefault(1))
}
