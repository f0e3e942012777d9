package remove

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

const (
	// parallelDeletes is how many objects are deleted at once.
	parallelDeletes = 16
	// maxUnconfirmed is how many objects are deleted at most until the owner file is read again, and maxOwnerAge
	// after how much time it is.
	maxUnconfirmed = 100
	maxOwnerAge    = 2 * time.Second
	// maxRounds bounds how often the directory is listed again, should something still write to it.
	maxRounds = 3
	// maxNamed is how many objects a message names.
	maxNamed = 3
)

// removeData empties the backup's directory if it is this backup's. The tarball goes first:
// velero-backup.json without one means that the backup is being removed. velero-backup.json, by
// which a backup is known to exist, goes last, and right before it the owner file.
func (j *deletionJob) removeData(ctx context.Context) (err error) {
	if j.location == nil {
		return nil
	}
	store, err := j.remover.Locations.Open(ctx, j.location)
	if err != nil {
		return j.unshownError(err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	own, stored, err := ownsDirectory(ctx, store, j)
	if err != nil {
		return j.unshownError(err)
	}
	if !own {
		j.remover.Log.Info("Data under the name of the backup belongs to another backup; keeping the data", "backup", j.backup.Name, "location", j.location.Name)
		return nil
	}
	if err := j.keepsVolumeData(ctx, store); err != nil {
		return &keptError{err, byVolumeData}
	}
	if err := j.runBefore(ctx, store, stored); err != nil {
		return err
	}
	e := &dirRemoval{j: j, store: store}
	err = span.Do(ctx, "remove the files", e.removeDirectory)
	if !errors.Is(err, errReplaced) {
		return err
	}
	j.remover.Log.Info("Directory of the backup now belongs to another backup; keeping the directory", "backup", j.backup.Name, "location", j.location.Name)
	return nil
}

// runBefore does what is done before the files of a backup go.
func (j *deletionJob) runBefore(ctx context.Context, store objectstore.Store, stored *velerov1.Backup) error {
	for _, step := range [...]struct {
		name string
		do   func(context.Context, objectstore.Store, *velerov1.Backup) error
	}{
		{"run the delete item actions", j.runActions},
		{"remove the CSI snapshots", j.removeCSI},
		{"remove the native snapshots", j.removeSnapshots},
		{"remove the snapshots of Pod volumes", j.forgetVolumes},
	} {
		if err := span.Do(ctx, step.name, func(ctx context.Context) error { return step.do(ctx, store, stored) }); err != nil {
			return err
		}
	}
	return nil
}

// errReplaced means that a user deleted the Backup and made another of that name, which has
// reserved the directory.
var errReplaced = errors.New("the directory has become another backup's")

// dirRemoval is the removal of one directory.
type dirRemoval struct {
	j         *deletionJob
	store     objectstore.Store
	ownerRead time.Time // when the owner file was read last
	// hasRecords: there are records of what plugins did.
	hasRecords bool
}

func (e *dirRemoval) removeDirectory(ctx context.Context) error {
	if e.j.remover.Actions != nil || e.j.remover.Snapshots != nil { // plugins may have worked for hours
		if err := e.checkOwner(ctx); err != nil {
			return err
		}
	}
	// A failure shows again with the rest, which is deleted all the same.
	if err := e.removeObject(ctx, layout.BackupTarball(e.j.backup.Name)); err != nil && ctx.Err() != nil {
		return err
	}
	for range maxRounds {
		left, err := e.removeContent(ctx)
		if err != nil {
			return err
		}
		if !left {
			return e.removeMarkers(ctx)
		}
	}
	return errors.New("objects keep being written to the backup's directory")
}

// removeContent deletes everything in the directory except for the two files that identify it and, as long
// as there may be a tarball, the records of the deletion, and reports whether there was anything.
func (e *dirRemoval) removeContent(ctx context.Context) (found bool, err error) {
	name := e.j.backup.Name
	var failed removalFailures
	group, gctx := panics.NewGroup(ctx)
	group.SetLimit(parallelDeletes)
	n := 0
	err = e.store.List(ctx, layout.BackupDir(name), func(i objectstore.Info) error {
		if i.Key == layout.BackupMetadata(name) || i.Key == layout.OwnerFile(name) {
			return nil
		}
		if strings.HasPrefix(i.Key, layout.DeletionDir(name)) {
			e.hasRecords = true
			return nil
		}
		found = true
		if n++; n%maxUnconfirmed == 1 || e.j.remover.Clock.Since(e.ownerRead) >= maxOwnerAge {
			if err := e.checkOwner(ctx); err != nil {
				return err
			}
		}
		group.Go(func() error {
			if err := e.removeObject(gctx, i.Key); err != nil {
				failed.addError(err)
			}
			return nil
		})
		return gctx.Err()
	})
	return found, errors.Join(err, group.Wait(), failed.joinedError())
}

// checkOwner fails with errReplaced when the directory is another backup's by now.
func (e *dirRemoval) checkOwner(ctx context.Context) error {
	e.ownerRead = e.j.remover.Clock.Now()
	own, _, err := ownsDirectory(ctx, e.store, e.j)
	if err == nil && !own {
		err = errReplaced
	}
	return err
}

// removeObject deletes one object, if the work is this process's.
func (e *dirRemoval) removeObject(ctx context.Context, key string) error {
	if err := e.j.held.Confirm(ctx); err != nil {
		return err
	}
	if err := e.store.Delete(ctx, key); err != nil {
		return err
	}
	failpoint.Hit("deletion/object-removed")
	return nil
}

// removeMarkers deletes the files that identify the directory, and unfinished uploads, which lists do not
// show.
func (e *dirRemoval) removeMarkers(ctx context.Context) error {
	name := e.j.backup.Name
	if err := e.checkOwner(ctx); err != nil {
		return err
	}
	_, err := objectstore.SweepUploads(ctx, e.store, layout.BackupDir(name), func(objectstore.Upload) (bool, error) {
		return true, e.j.held.Confirm(ctx)
	})
	if err != nil { // they take up space only
		e.j.remover.Log.Warn("Failed to remove the unfinished uploads of a deleted backup; they stay", "backup", name, "error", err)
	}
	if e.hasRecords {
		err := e.store.List(ctx, layout.DeletionDir(name), func(i objectstore.Info) error { return e.removeObject(ctx, i.Key) })
		if err != nil {
			return err
		}
	}
	failpoint.Hit("deletion/before-marker")
	for _, key := range []string{layout.OwnerFile(name), layout.BackupMetadata(name)} {
		// Another backup that reserved the directory meanwhile has files of the same names.
		if err := e.checkOwner(ctx); err != nil {
			return err
		}
		if err := e.removeObject(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// removalFailures collects errors of objects; the rest is deleted all the same.
type removalFailures struct {
	mu    sync.Mutex
	first []error
	count int
}

func (f *removalFailures) addError(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count++; len(f.first) < maxNamed {
		f.first = append(f.first, err)
	}
}

func (f *removalFailures) joinedError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if more := f.count - len(f.first); more > 0 {
		return fmt.Errorf("%w (and %d more objects)", errors.Join(f.first...), more)
	}
	return errors.Join(f.first...)
}
