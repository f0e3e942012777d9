// Package snapshots deletes the native volume snapshots of a backup that is deleted, through the
// plugins of their VolumeSnapshotLocations, while the bucket still lists them.
package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
)

const (
	// parallelDeletes is how many snapshots are deleted at once.
	parallelDeletes = 8
	// maxRecord bounds a record that is read.
	maxRecord = 16 << 20
	// recordBatch is how many are deleted before a record of them is stored.
	recordBatch = 64
	// releaseLimit bounds the record of an attempt that was interrupted.
	releaseLimit = 5 * time.Second
)

// Locations opens the snapshotters of VolumeSnapshotLocations; nativesnapshot.Opener is one.
type Locations interface {
	Open(ctx context.Context, location string) (action.VolumeSnapshotter, error)
	Close() error
}

// Remover deletes the snapshots of any number of backups at once.
type Remover struct {
	// Open begins the use of plugins for one backup; what they log goes to log. The returned
	// function ends their processes.
	Open    func(ctx context.Context, log *slog.Logger) (Locations, func())
	Log     *slog.Logger
	Plugins *itemaction.PluginLimit // of all deletions together, by location
}

// Job is one attempt at the deletion of one backup.
type Job struct {
	Backup string
	// UID names the backup in the bucket, whatever its object's UID is in this cluster.
	UID string
	// Attempt names this attempt, and no other one, in characters that a key may hold.
	Attempt string
	// Store is the backup's location.
	Store objectstore.Store
	// Confirm returns an error when the deletion is not this process's any more. It is asked before
	// every snapshot.
	Confirm func(ctx context.Context) error
}

// Run deletes every snapshot that an earlier attempt did not delete. All are tried; what failed is
// an *itemaction.FailedError, each of its errors naming snapshot and volume. Where none is left no
// plugin is started, nor where as many other deletions use a location as may: the error wraps
// itemaction.ErrBusy. A snapshot may be deleted twice if the process dies in between, which the
// protocol lets plugins accept: that there is none is no error.
func (r *Remover) Run(ctx context.Context, job Job) error {
	all, err := nativesnapshot.Read(ctx, job.Store, job.Backup)
	if err != nil || len(all) == 0 {
		return err
	}
	done, err := r.loadDeleted(ctx, job)
	if err != nil {
		return err
	}
	var left []nativesnapshot.Snapshot
	for _, s := range all {
		if id := s.Status.ProviderSnapshotID; id != "" && !done[snapshotID(&s)] {
			left = append(left, s)
		}
	}
	if len(left) == 0 {
		return nil
	}
	plugins := r.Plugins.OpenUse()
	defer plugins.Close()
	for i := range left {
		if err := plugins.AddPlugin(fmt.Sprintf("VolumeSnapshotLocation %q", left[i].Spec.Location)); err != nil {
			return err
		}
	}
	locations, end := r.Open(ctx, r.Log.With("backup", job.Backup))
	defer end()
	p := &snapshotPass{job: job, locations: locations, log: r.Log}
	err = p.deleteSnapshots(ctx, left)
	if closed := locations.Close(); closed != nil { // nothing of the backup depends on it
		r.Log.WarnContext(ctx, "Failed to remove the credentials of VolumeSnapshotLocations; they stay on the disk", "error", closed)
	}
	return err
}

// snapshotPass is one attempt at some snapshots.
type snapshotPass struct {
	job       Job
	locations Locations
	log       *slog.Logger
	records   int

	mu      sync.Mutex
	deleted []string
	errs    []error
}

func (p *snapshotPass) deleteSnapshots(ctx context.Context, left []nativesnapshot.Snapshot) error {
	for some := range slices.Chunk(left, recordBatch) {
		p.deleteBatch(ctx, some)
		p.recordDeleted(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if len(p.errs) > 0 {
		return itemaction.FailedWith(p.errs)
	}
	return nil
}

// deleteBatch tries a batch.
func (p *snapshotPass) deleteBatch(ctx context.Context, left []nativesnapshot.Snapshot) {
	var group panics.Group
	group.SetLimit(parallelDeletes)
	for i := range left {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			err := p.deleteSnapshot(ctx, &left[i])
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil {
				p.errs = append(p.errs, err)
			} else {
				p.deleted = append(p.deleted, snapshotID(&left[i]))
			}
			return nil
		})
	}
	_ = group.Wait() // errors are in errs; a panic is carried on
}

func (p *snapshotPass) deleteSnapshot(ctx context.Context, s *nativesnapshot.Snapshot) error {
	what := fmt.Sprintf("snapshot %q of volume %q", s.Status.ProviderSnapshotID, s.Spec.PersistentVolumeName)
	snapshotter, err := p.locations.Open(ctx, s.Spec.Location)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := p.job.Confirm(ctx); err != nil {
		return err
	}
	if err := snapshotter.DeleteSnapshot(ctx, s.Status.ProviderSnapshotID); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// snapshotID names a snapshot within a backup.
func snapshotID(s *nativesnapshot.Snapshot) string {
	return s.Spec.Location + "/" + s.Status.ProviderSnapshotID
}

// deletedRecord is one object of the bucket that lists what an attempt deleted.
type deletedRecord struct {
	Version int      `json:"version"`
	Deleted []string `json:"deletedSnapshots"`
}

const recordVersion = 1

func recordPrefix(job *Job) string { return layout.DeletionSnapshots(job.Backup, job.UID) }

// loadDeleted reads what earlier attempts deleted. A damaged record is reported and left out: its
// snapshots are deleted again.
func (r *Remover) loadDeleted(ctx context.Context, job Job) (map[string]bool, error) {
	done := map[string]bool{}
	err := job.Store.List(ctx, recordPrefix(&job), func(i objectstore.Info) error {
		data, err := objectstore.ReadAll(ctx, job.Store, i.Key, maxRecord)
		if err != nil && !errors.Is(err, objectstore.ErrSize) {
			return err
		}
		var rec deletedRecord
		if err == nil {
			err = jsonlimit.Unmarshal(data, &rec, jsonlimit.Object)
		}
		if err == nil && rec.Version != recordVersion {
			err = fmt.Errorf("version %d", rec.Version)
		}
		if err != nil {
			r.Log.Warn("Failed to read a record of deleted snapshots; deleting the snapshots again", "key", i.Key, "error", err)
			return nil
		}
		for _, id := range rec.Deleted {
			done[id] = true
		}
		return nil
	})
	return done, err
}

// recordDeleted keeps what was deleted from being deleted again, also when the process is being stopped.
// What cannot be recorded comes into the next record.
func (p *snapshotPass) recordDeleted(ctx context.Context) {
	if len(p.deleted) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	data, err := json.Marshal(deletedRecord{Version: recordVersion, Deleted: p.deleted})
	if err == nil {
		err = p.job.Confirm(ctx)
	}
	key := fmt.Sprintf("%s%s-%06d.json", recordPrefix(&p.job), p.job.Attempt, p.records)
	p.records++ // also after a failure: the object may be there nevertheless
	if err == nil {
		err = objectstore.CreateBytes(ctx, p.job.Store, key, data)
	}
	if err != nil {
		p.log.WarnContext(ctx, "Failed to record deleted snapshots; a later attempt may delete them again", "backup", p.job.Backup, "error", err)
		return
	}
	p.deleted = nil
}
