// Package restore writes a snapshot of a repository into a volume.
//
// A directory is written through os.Root, under names that are checked, and existing entries are
// replaced and never followed: whatever a snapshot has in it, nothing outside of the target is written.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/kopia/kopia/snapshot"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// Spec is what to restore.
type Spec struct {
	// SnapshotID is the snapshot's ID.
	SnapshotID string
	// Path is the directory or block device to write.
	Path string
	// Overwrite lets the directory hold entries; those that the snapshot has too are replaced.
	Overwrite bool
	// DeleteExtra removes the entries of the directory that the snapshot does not have.
	DeleteExtra bool
	// Paths are the entries to restore; none is the whole snapshot. They replace those of the directory, which may
	// be in use, one by one.
	Paths []string
	// Parallel is how many files are written at once.
	Parallel int
}

// ErrNotEmpty means that the target holds entries, and that the request does not allow for it.
var ErrNotEmpty = errors.New("the target is not empty")

// lostAndFound is made by the file system and does not count as an entry of the target.
const lostAndFound = "lost+found"

// Run restores the snapshot. It is Completed only after the data is durable. If ctx ends, the result is
// Canceled, and the target holds a part of the snapshot.
func Run(ctx context.Context, r *repository.Repository, spec Spec, rec *outcome.Recorder) outcome.Result {
	result := outcome.Result{Phase: outcome.Completed, SnapshotID: spec.SnapshotID}
	w := &snapshotWriter{repository: r, spec: spec, rec: rec}
	switch err := w.restoreSnapshot(ctx); {
	case ctx.Err() != nil:
		result.Phase, result.Message = outcome.Canceled, fmt.Sprintf("canceled (%v); the target holds a part of the snapshot", context.Cause(ctx))
	case err != nil:
		result.Phase, result.Message, result.NotEmpty = outcome.Failed, err.Error(), errors.Is(err, ErrNotEmpty)
	}
	result.Bytes, result.Files, result.Directories, result.Symlinks = w.counts.bytes, w.counts.files, w.counts.directories, w.counts.symlinks
	rec.Finish(&result)
	return result
}

// snapshotWriter restores one snapshot.
type snapshotWriter struct {
	repository *repository.Repository
	spec       Spec
	rec        *outcome.Recorder
	root       *os.Root
	files      *errgroup.Group

	mu          sync.Mutex
	counts      struct{ bytes, files, directories, symlinks int64 }
	directories []pendingDirectory // whose metadata is set when all else is written
}

// pendingDirectory is a directory that is not finished.
type pendingDirectory struct {
	path  string
	entry *snapshot.DirEntry
}

func (w *snapshotWriter) restoreSnapshot(ctx context.Context) error {
	m, err := w.repository.LoadSnapshot(ctx, w.spec.SnapshotID)
	if err != nil {
		return err
	}
	if m.RootEntry.Type != snapshot.EntryTypeDirectory {
		return fmt.Errorf("%w: the root of snapshot %s is no directory", repository.ErrDamaged, m.ID)
	}
	if s := m.RootEntry.DirSummary; s != nil {
		w.rec.SetTotal(s.TotalFileSize)
	}
	info, err := os.Stat(w.spec.Path)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	switch {
	case info.IsDir():
		return w.restoreTree(ctx, m.RootEntry)
	case info.Mode()&fs.ModeType == fs.ModeDevice && len(w.spec.Paths) == 0:
		// Exclusive: a device that is mounted is refused.
		f, err := os.OpenFile(w.spec.Path, os.O_WRONLY|os.O_EXCL, 0)
		if err != nil {
			return fmt.Errorf("target: %w", err)
		}
		return errors.Join(w.restoreDevice(ctx, m.RootEntry, f), f.Close())
	}
	return fmt.Errorf("target: %s is neither a directory nor a block device", w.spec.Path)
}

func (w *snapshotWriter) restoreTree(ctx context.Context, top *snapshot.DirEntry) (err error) {
	if w.root, err = os.OpenRoot(w.spec.Path); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	defer func() { err = errors.Join(err, w.root.Close()) }()
	if !w.spec.Overwrite {
		if err := w.checkEmpty(); err != nil {
			return err
		}
	}
	w.files, ctx = errgroup.WithContext(ctx)
	w.files.SetLimit(w.spec.Parallel)
	var walkErr error
	if len(w.spec.Paths) > 0 {
		lock, err := w.lockTarget()
		if err != nil {
			return fmt.Errorf("target: %w", err)
		}
		defer func() { _ = lock.Close() }()
		walkErr = w.restorePaths(ctx, top)
	} else {
		walkErr = w.restoreDirectory(ctx, ".", top, 0)
	}
	if err := w.files.Wait(); err != nil { // the first one ends the walk
		return err
	}
	if walkErr != nil {
		return walkErr
	}
	for i := len(w.directories) - 1; i >= 0; i-- { // what is below comes first
		d := w.directories[i]
		w.setMetadata(d.path, d.path, d.entry)
	}
	return w.flushTarget()
}

// checkEmpty makes sure that the target is empty.
func (w *snapshotWriter) checkEmpty() error {
	f, err := w.root.Open(".")
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("target: %w", err)
	}
	for _, name := range names {
		if name != lostAndFound {
			return fmt.Errorf("%w: it holds %q", ErrNotEmpty, name)
		}
	}
	return nil
}

// flushTarget makes what was written durable.
func (w *snapshotWriter) flushTarget() error {
	f, err := w.root.Open(".")
	if err != nil {
		return fmt.Errorf("flush the target: %w", err)
	}
	if err := errors.Join(unix.Syncfs(int(f.Fd())), f.Close()); err != nil {
		return fmt.Errorf("flush the target: %w", err)
	}
	return nil
}

// setMetadata sets the owner, then the mode, which a change of the owner may alter, then the time. What
// fails is recorded under the name of the entry.
func (w *snapshotWriter) setMetadata(place, name string, e *snapshot.DirEntry) {
	err := w.root.Lchown(place, int(e.UserID), int(e.GroupID))
	if e.Type == snapshot.EntryTypeSymlink {
		err = errors.Join(err, w.setLinkTime(place, e.ModTime.ToTime()))
	} else {
		err = errors.Join(err, w.root.Chmod(place, fs.FileMode(e.Permissions)&modeBits), w.root.Chtimes(place, time.Time{}, e.ModTime.ToTime()))
	}
	if err != nil {
		w.rec.Add(name, outcome.Metadata, err)
	}
}

// setFileMetadata is setMetadata of an open file, whose path need not be walked once more for each.
func (w *snapshotWriter) setFileMetadata(f *os.File, name string, e *snapshot.DirEntry) {
	link := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	err := errors.Join(f.Chown(int(e.UserID), int(e.GroupID)), f.Chmod(fs.FileMode(e.Permissions)&modeBits), os.Chtimes(link, time.Time{}, e.ModTime.ToTime()))
	if err != nil {
		w.rec.Add(name, outcome.Metadata, err)
	}
}

// modeBits are the bits of a mode that a snapshot has.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
