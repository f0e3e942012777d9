package repository

import (
	"context"
	"errors"
	"time"

	"github.com/kopia/kopia/fs"
	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/snapshot"
)

const (
	// KeepInterval is the time between two calls of KeepParents. Full maintenance removes content five hours after it
	// found it unused, or later (kopia's margins between cycles).
	KeepInterval = 4 * time.Hour
	// checkpointAge is how old a checkpoint may be: an upload that runs has one which is younger than KeepInterval.
	checkpointAge = 14 * 24 * time.Hour
	// keptPin is the pin of kept parents; kopia's retention leaves what has a pin.
	keptPin = "holdfast.io/parent-of-upload"
)

// KeepParents stores the parents of an upload that still runs as pinned checkpoints of its source, so that no
// maintenance removes their content, also when the parents are forgotten. The snapshots that it returns, also with an
// error, have to be forgotten at the end.
func (r *Repository) KeepParents(ctx context.Context, s Source, parents []*snapshot.Manifest) (ids []string, err error) {
	err = r.Write(ctx, "keep parents", func(ctx context.Context, w repo.RepositoryWriter) error {
		for _, p := range parents {
			m := *p
			m.Source, m.Pins, m.EndTime = s.Info(), []string{keptPin}, fs.UTCTimestampFromTime(w.Time())
			if err := SaveCheckpoint(ctx, w, s, &m); err != nil {
				return err
			}
			ids = append(ids, string(m.ID))
		}
		return nil
	})
	return ids, err
}

// ForgetLeftCheckpoints removes what uploads that ended without a snapshot have left for two weeks: checkpoints, and kept
// parents.
func ForgetLeftCheckpoints(ctx context.Context, w repo.RepositoryWriter) error {
	return removeCheckpoints(ctx, w, nil, map[string]string{tagUploader: uploader}, func(m *snapshot.Manifest) bool {
		return w.Time().Sub(m.EndTime.ToTime()) > checkpointAge
	})
}

// removeCheckpoints removes the checkpoints of a source, or of all, that have the tags and match.
func removeCheckpoints(ctx context.Context, w repo.RepositoryWriter, where *snapshot.SourceInfo, tags map[string]string, matches func(*snapshot.Manifest) bool) error {
	ids, err := snapshot.ListSnapshotManifests(ctx, w, where, tags)
	if err != nil {
		return err
	}
	found, err := snapshot.LoadSnapshots(ctx, w, ids)
	if err != nil {
		return err
	}
	for _, m := range found {
		if m.IncompleteReason == checkpointReason && matches(m) {
			err = errors.Join(err, w.DeleteManifest(ctx, m.ID))
		}
	}
	return err
}
