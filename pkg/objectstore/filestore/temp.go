package filestore

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// tempDir holds files that are being written. It is not part of the key space.
const tempDir = ".holdfast-tmp"

// tempAge is how old a temporary file is before no process can still be writing it.
const tempAge = 24 * time.Hour

// maxName is the longest file name that file systems take, in bytes.
const maxName = 255

// tempName makes a new name for a file that will become key: random, then the key as far as there
// is room, so that what a killed writer left can be attributed.
func tempName(key string) string {
	name := rand.Text() + "." + url.PathEscape(key)
	return name[:min(len(name), maxName)]
}

// tempKey returns the key a temporary file was to become; false where the name was too short for
// it.
func tempKey(name string) (string, bool) {
	_, escaped, ok := strings.Cut(name, ".")
	if !ok || len(name) == maxName {
		return "", false
	}
	key, err := url.PathUnescape(escaped)
	return key, err == nil && objectstore.CheckKey(key) == nil
}

// tempFiles are the files that are being written: as many as writers, living or dead. Safe for
// concurrent use.
type tempFiles struct{ root *os.Root }

// createTemp opens a new file for what will become key.
func (t tempFiles) createTemp(key string) (*os.File, string, error) {
	tmp := path.Join(tempDir, tempName(key))
	for range publishTries {
		if err := t.root.Mkdir(tempDir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, "", err
		}
		f, err := t.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, tmp, err
		}
	}
	return nil, "", fs.ErrNotExist
}

// listTemp returns the files in no order, none where there is no directory.
func (t tempFiles) listTemp() ([]fs.DirEntry, error) {
	dir, err := t.root.Open(tempDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return dir.ReadDir(-1)
}

func (t tempFiles) removeTemp(name string) error { return t.root.Remove(path.Join(tempDir, name)) }

// removeDir removes the directory if it is empty; a writer makes it again.
func (t tempFiles) removeDir() { _ = t.root.Remove(tempDir) }

// sweepStale removes what crashed writers left. It is housekeeping: what cannot be removed now is left to
// the next start.
func (t tempFiles) sweepStale() {
	entries, err := t.listTemp()
	if err != nil {
		return
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > tempAge { //nolint:forbidigo // times of files are of no injected clock
			_ = t.removeTemp(e.Name())
		}
	}
}
