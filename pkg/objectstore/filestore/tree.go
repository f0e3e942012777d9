package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// dirTree is the directories that objects lie in. Safe for concurrent use.
type dirTree struct {
	root  *os.Root
	syncs dirSyncs
}

// makeDirectories creates dir and its parents; each new entry is made durable, or the object could vanish
// with its directory.
func (t *dirTree) makeDirectories(dir string) error {
	if dir == "." {
		return nil
	}
	if _, err := t.root.Lstat(dir); err == nil {
		return nil
	}
	done := ""
	for seg := range strings.SplitSeq(dir, "/") {
		up := done
		done = path.Join(done, seg)
		err := t.root.Mkdir(done, dirMode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := t.syncEntries(path.Join(".", up)); err != nil {
			return err
		}
	}
	return nil
}

// syncEntries makes the entries of a directory durable.
func (t *dirTree) syncEntries(dir string) error { return t.syncs.syncDir(dir) }

func (t *dirTree) syncDirectory(dir string) error {
	d, err := t.root.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
