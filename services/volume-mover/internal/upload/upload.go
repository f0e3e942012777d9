// Package upload stores the data of a volume as a snapshot in a repository.
package upload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	kopiafs "github.com/kopia/kopia/fs"
	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/snapshot"
	kopiaupload "github.com/kopia/kopia/snapshot/upload"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/source"
)

// graceOfCancel is how long a canceled upload may take to store its checkpoint. The default of a Pod is
// 30 s.
const graceOfCancel = 25 * time.Second

// measureDelay is after how much time of an upload measureVolume begins.
const measureDelay = 10 * time.Second

// Spec is what to upload.
type Spec struct {
	// Path is the directory or block device.
	Path string
	// Source names the volume.
	Source repository.Source
	// Parallel is how many files are read at once.
	Parallel int
	// CheckpointInterval is how much time of work is lost at most when the process is killed.
	CheckpointInterval time.Duration
	Clock              clock.WithTickerAndDelayedExecution
}

// Run uploads the volume. If ctx ends, what was stored so far is kept as a checkpoint, and the result is
// Canceled. It is Completed only after the snapshot is durable.
func Run(ctx context.Context, r *repository.Repository, spec Spec, rec *outcome.Recorder) outcome.Result {
	result, err := storeVolume(ctx, r, spec, rec)
	if err != nil {
		result.SnapshotID, result.Phase, result.Message = "", outcome.Failed, err.Error()
	}
	rec.Finish(&result)
	return result
}

func storeVolume(ctx context.Context, r *repository.Repository, spec Spec, rec *outcome.Recorder) (result outcome.Result, err error) {
	volume, err := source.Open(spec.Path, spec.Clock.Now(), rec.Add)
	if err != nil {
		return result, fmt.Errorf("source: %w", err)
	}
	defer func() { err = errors.Join(err, volume.Close()) }()
	root, err := volume.Root()
	if err != nil {
		return result, fmt.Errorf("source: %w", err)
	}
	parents, err := r.Parents(ctx, spec.Source)
	if err != nil {
		return result, fmt.Errorf("earlier snapshots: %w", err)
	}
	work, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	defer measureVolume(work, volume, spec.Clock, rec)()
	err = r.Write(work, "upload", func(work context.Context, w repo.RepositoryWriter) error {
		if err := repository.SavePolicy(work, w, spec.Source); err != nil {
			return err
		}
		u := &kopiaUpload{repository: r, spec: spec, rec: rec, kopia: kopiaupload.NewUploader(w)}
		stop := context.AfterFunc(ctx, func() {
			u.kopia.Cancel()
			spec.Clock.AfterFunc(graceOfCancel, abort)
		})
		defer stop()
		defer u.keepParents(work, parents)()
		var err error
		result, err = u.runKopia(ctx, work, w, root, parents)
		return err
	})
	return result, err
}

// measureVolume sets the total size of an upload that lasts longer than measureDelay, while it runs. The returned
// function ends that.
func measureVolume(ctx context.Context, volume *source.Volume, clk clock.Clock, rec *outcome.Recorder) func() {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-clk.After(measureDelay):
		}
		if size := volume.Size(ctx); ctx.Err() == nil {
			rec.SetTotal(size)
		}
	})
	return func() { cancel(); done.Wait() }
}

// kopiaUpload is one call of kopia's uploader.
type kopiaUpload struct {
	repository *repository.Repository
	spec       Spec
	rec        *outcome.Recorder
	kopia      *kopiaupload.Uploader

	mu     sync.Mutex
	broken error // the first error that is not one of the volume's
}

func (u *kopiaUpload) runKopia(ctx, work context.Context, w repo.RepositoryWriter, root kopiafs.Directory, parents []*snapshot.Manifest) (outcome.Result, error) {
	progress := &uploadProgress{upload: u}
	u.kopia.Progress = progress
	u.kopia.ParallelUploads = u.spec.Parallel
	u.kopia.DisableIgnoreRules = true
	u.kopia.CheckpointInterval = u.spec.CheckpointInterval
	u.kopia.CheckpointLabels = u.spec.Source.CheckpointTags()
	m, err := u.kopia.Upload(work, root, repository.UploadPolicy(u.spec.Parallel), u.spec.Source.Info(), parents...)
	switch broken := u.failure(); {
	case broken != nil:
		return outcome.Result{}, broken
	case err != nil:
		return outcome.Result{}, err
	case m.IncompleteReason == "":
		return u.storeSnapshot(work, w, m, progress.hashed.Load())
	case ctx.Err() == nil: // kopia's error states only that the upload stopped
		return outcome.Result{}, fmt.Errorf("a checkpoint could not be stored; the newest write that failed: %v", u.repository.LastFailure()) //nolint:errorlint // may be nil
	}
	if err := repository.SaveCheckpoint(work, w, u.spec.Source, m); err != nil {
		return outcome.Result{}, fmt.Errorf("canceled, and the checkpoint could not be stored: %w", err)
	}
	return outcome.Result{
		Phase: outcome.Canceled, Bytes: m.Stats.TotalFileSize, IncrementalBytes: progress.hashed.Load(),
		Message: fmt.Sprintf("canceled (%v); what was stored is kept, and the next upload of the volume goes on from it", context.Cause(ctx)),
	}, nil
}

func (u *kopiaUpload) storeSnapshot(ctx context.Context, w repo.RepositoryWriter, m *snapshot.Manifest, hashed int64) (outcome.Result, error) {
	id, err := u.repository.SaveSnapshot(ctx, w, u.spec.Source, m)
	if err != nil {
		return outcome.Result{}, fmt.Errorf("store the snapshot: %w", err)
	}
	result := outcome.Result{Phase: outcome.Completed, SnapshotID: id, IncrementalBytes: hashed}
	if s := m.RootEntry.DirSummary; s != nil {
		result.Bytes, result.Files, result.Directories, result.Symlinks = s.TotalFileSize, s.TotalFileCount, s.TotalDirCount, s.TotalSymlinkCount
		u.rec.SetTotal(result.Bytes)
	}
	return result, nil
}

func (u *kopiaUpload) failure() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.broken
}

// failUpload ends the upload: what kopia takes for an error of a file is one of the repository.
func (u *kopiaUpload) failUpload(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.broken == nil {
		u.broken = err
	}
	u.kopia.Cancel()
}
