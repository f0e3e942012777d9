package restore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/kopia/kopia/snapshot"
	"golang.org/x/sys/unix"
)

// unfinished begins the name of an entry that is being written beside the one that it replaces.
const unfinished = ".holdfast-restore-"

// errBusy means that two restores would write beside the same entry, under one name.
var errBusy = errors.New("another restore of files writes into the target: repeat this one when that has ended")

// lockTarget keeps other restores of paths out of the target until the file is closed, where its file system has locks.
func (w *snapshotWriter) lockTarget() (*os.File, error) {
	f, err := w.root.Open(".")
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(errBusy, f.Close())
	}
	return f, nil
}

// restorePaths writes the entries of the paths, all of which are found before anything is written.
func (w *snapshotWriter) restorePaths(ctx context.Context, top *snapshot.DirEntry) error {
	var found [][]*snapshot.DirEntry
	var total int64
	for _, name := range w.spec.Paths {
		entries, err := w.repository.FindPath(ctx, top, name)
		if err != nil {
			return fmt.Errorf("snapshot %s: %w", w.spec.SnapshotID, err)
		}
		found = append(found, entries)
		if last := entries[len(entries)-1]; last.DirSummary != nil {
			total += last.DirSummary.TotalFileSize
		} else {
			total += last.FileSize
		}
	}
	w.rec.SetTotal(total)
	for _, entries := range found {
		dir, last := ".", len(entries)-1
		for _, parent := range entries[1:last] {
			dir = path.Join(dir, parent.Name)
			if err := w.makeParent(dir, parent); err != nil {
				return err
			}
		}
		if err := w.restoreEntry(ctx, dir, entries[last], last); err != nil {
			return err
		}
	}
	return nil
}

// makeParent makes a directory above a path. One that is there stays as it is, also if a restore that was interrupted made
// it: so it has its owner and mode at once. A link is not followed.
func (w *snapshotWriter) makeParent(name string, e *snapshot.DirEntry) error {
	switch info, err := w.root.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		w.mu.Lock()
		w.directories = append(w.directories, pendingDirectory{name, e})
		w.mu.Unlock()
		if err := w.root.Mkdir(name, 0o700); err != nil {
			return err
		}
		// What fails is recorded when all metadata is set.
		_ = w.root.Lchown(name, int(e.UserID), int(e.GroupID))
		_ = w.root.Chmod(name, fs.FileMode(e.Permissions)&modeBits|0o700)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is a directory in the snapshot, and none in the target", name)
	}
	return nil
}

// makePlace returns where a file or link is written: at its name, where it makes room, or, with paths, beside it. So
// who uses the directory sees the old entry or the new one, and the old one stays if the new one cannot be read. The
// name of the place is the same each time: what a mover that was killed left is replaced by the next.
func (w *snapshotWriter) makePlace(name string) (string, error) {
	if err := w.makeRoom(name); err != nil || len(w.spec.Paths) == 0 {
		return name, err
	}
	place := path.Join(path.Dir(name), fmt.Sprintf("%s%.8x", unfinished, sha256.Sum256([]byte(name))))
	if err := w.root.Remove(place); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return place, nil
}

// finishEntry gives a file or link that is written its name.
func (w *snapshotWriter) finishEntry(place, name string) error {
	if place == name {
		return nil
	}
	w.noteReplaced(name)
	if err := w.root.Rename(place, name); err != nil {
		return errors.Join(err, w.root.Remove(place))
	}
	return nil
}
