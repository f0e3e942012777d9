package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/kopia/kopia/snapshot"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/source"
)

const (
	// maxDepth limits how deep directories are nested.
	maxDepth = 1000
	// maxTarget is the longest target of a symbolic link on Linux.
	maxTarget = 4095
)

// restoreDirectory writes the entries of a directory that exists, and begins those of its files.
func (w *snapshotWriter) restoreDirectory(ctx context.Context, dir string, e *snapshot.DirEntry, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: %s: directories are nested deeper than %d", repository.ErrDamaged, dir, maxDepth)
	}
	w.mu.Lock()
	w.counts.directories++
	w.directories = append(w.directories, pendingDirectory{dir, e})
	w.mu.Unlock()
	var known map[string]bool
	if w.spec.DeleteExtra {
		known = map[string]bool{}
	}
	var stopped error // by an entry
	err := w.repository.EachEntry(ctx, e, func(child *snapshot.DirEntry) error {
		if known != nil {
			known[child.Name] = true
		}
		stopped = w.restoreEntry(ctx, dir, child, depth)
		return stopped
	})
	if stopped != nil {
		return stopped
	}
	if err != nil {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	if known == nil {
		return nil
	}
	return w.deleteExtra(dir, known)
}

func (w *snapshotWriter) restoreEntry(ctx context.Context, dir string, e *snapshot.DirEntry, depth int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
		return fmt.Errorf("%w: directory %s: %q cannot be the name of an entry", repository.ErrDamaged, dir, e.Name)
	}
	name := path.Join(dir, e.Name)
	switch e.Type {
	case snapshot.EntryTypeDirectory:
		if err := w.makeDirectory(name); err != nil {
			return err
		}
		return w.restoreDirectory(ctx, name, e, depth+1)
	case snapshot.EntryTypeFile:
		w.files.Go(func() error { return w.restoreFile(ctx, name, e) })
	case snapshot.EntryTypeSymlink:
		w.files.Go(func() error { return w.restoreSymlink(ctx, name, e) })
	default:
		w.rec.Add(name, outcome.Type, fmt.Errorf("unknown type %q", e.Type))
	}
	return nil
}

// makeDirectory makes a directory, unless the target may have one already and does.
func (w *snapshotWriter) makeDirectory(name string) error {
	switch info, err := w.root.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir() && (w.spec.Overwrite || name == lostAndFound):
		return nil
	case w.spec.Overwrite:
		w.noteReplaced(name)
		if err := w.root.Remove(name); err != nil {
			return err
		}
	}
	return w.root.Mkdir(name, 0o700)
}

// makeRoom removes what is in the way of a file or link, if the request allows it.
func (w *snapshotWriter) makeRoom(name string) error {
	if !w.spec.Overwrite {
		return nil
	}
	info, err := w.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir() && len(w.spec.Paths) > 0:
		return nil // what is restored replaces it
	case !info.IsDir():
		w.noteReplaced(name)
		return w.root.Remove(name)
	case w.spec.DeleteExtra:
		return w.root.RemoveAll(name)
	}
	return fmt.Errorf("%s is a directory of the target, and no directory in the snapshot", name)
}

// noteReplaced records an entry that is about to be replaced if it has extended attributes: a snapshot has none for the new one.
func (w *snapshotWriter) noteReplaced(name string) {
	dir, err := w.root.Open(path.Dir(name))
	if err != nil { // the write that replaces the entry fails too
		return
	}
	defer func() { _ = dir.Close() }()
	if finder := source.NewAttributeFinder(dir); finder.HasAttributes(path.Base(name)) {
		w.rec.Add(name, outcome.Attributes, nil)
	}
}

func (w *snapshotWriter) restoreFile(ctx context.Context, name string, e *snapshot.DirEntry) error {
	place, err := w.makePlace(name)
	if err != nil {
		return err
	}
	f, err := w.root.OpenFile(place, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	damage, err := w.copyObject(ctx, e, func(r io.Reader) error { return copySparse(f, r, e.FileSize) }, func() error {
		if err := f.Truncate(e.FileSize); err != nil {
			return err
		}
		w.setFileMetadata(f, name, e)
		if place != name { // the file that it replaces goes once this one is on the disk
			return f.Sync()
		}
		return nil
	})
	if err = errors.Join(err, f.Close()); err != nil {
		if place != name {
			err = errors.Join(err, w.root.Remove(place))
		}
		return fmt.Errorf("file %s: %w", name, err)
	}
	if damage != nil {
		w.rec.Add(name, outcome.Damaged, damage)
		return w.root.Remove(place)
	}
	if err := w.finishEntry(place, name); err != nil {
		return err
	}
	w.mu.Lock()
	w.counts.files++
	w.counts.bytes += e.FileSize
	w.mu.Unlock()
	return nil
}

func (w *snapshotWriter) restoreSymlink(ctx context.Context, name string, e *snapshot.DirEntry) error {
	place, err := w.makePlace(name)
	if err != nil {
		return err
	}
	var target []byte
	damage, err := w.copyObject(ctx, e, func(r io.Reader) (err error) {
		target, err = io.ReadAll(io.LimitReader(r, maxTarget))
		return err
	}, func() error { return nil })
	if err != nil {
		return fmt.Errorf("symbolic link %s: %w", name, err)
	}
	if damage == nil && (len(target) == 0 || strings.Contains(string(target), "\x00")) {
		damage = errors.New("its target is empty or has a zero byte")
	}
	if damage != nil {
		w.rec.Add(name, outcome.Damaged, damage)
		return nil
	}
	if err := w.root.Symlink(string(target), place); err != nil {
		return err
	}
	w.setMetadata(place, name, e)
	if err := w.finishEntry(place, name); err != nil {
		return err
	}
	w.mu.Lock()
	w.counts.symlinks++
	w.mu.Unlock()
	return nil
}

// setLinkTime sets the time of a symbolic link itself.
func (w *snapshotWriter) setLinkTime(name string, t time.Time) error {
	dir, err := w.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(t.UnixNano())}
	return unix.UtimesNanoAt(int(dir.Fd()), path.Base(name), times, unix.AT_SYMLINK_NOFOLLOW)
}

// deleteExtra removes what the snapshot's directory does not have.
func (w *snapshotWriter) deleteExtra(dir string, known map[string]bool) error {
	f, err := w.root.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if known[name] || (dir == "." && name == lostAndFound) {
			continue
		}
		if err := w.root.RemoveAll(path.Join(dir, name)); err != nil {
			return fmt.Errorf("remove what the snapshot does not have: %w", err)
		}
	}
	return nil
}
