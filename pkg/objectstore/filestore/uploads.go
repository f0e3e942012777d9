package filestore

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"net/url"
	"path"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// maxName is the longest file name that file systems take, in bytes.
const maxName = 255

var _ objectstore.UploadSweeper = (*Store)(nil)

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

// SweepUploads implements objectstore.UploadSweeper: it removes temporary files. Begun is when a
// file was last written to. Keys of more than about 200 bytes are not remembered; such files are
// removed by Open a day later.
func (s *Store) SweepUploads(ctx context.Context, prefix string, abandoned func(objectstore.Upload) (bool, error)) (int, error) {
	if err := objectstore.CheckPrefix(prefix); err != nil {
		return 0, err
	}
	entries, err := s.readTemp(ctx)
	if err != nil {
		return 0, err
	}
	swept := 0
	for _, e := range entries {
		key, ok := tempKey(e.Name())
		if !ok || !strings.HasPrefix(key, prefix) {
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // published since
		}
		if err != nil {
			return swept, s.failed("sweep", key, readError(err))
		}
		if ok, err := abandoned(objectstore.Upload{Key: key, Begun: fi.ModTime()}); err != nil {
			return swept, err
		} else if !ok {
			continue
		}
		if err := s.root.Remove(path.Join(tempDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return swept, s.failed("sweep", key, writeError(err))
		}
		swept++
	}
	_ = s.root.Remove(tempDir) // if it is empty now; a writer makes it again
	return swept, nil
}

// readTemp lists the temporary files; there are as many as writers, living or dead.
func (s *Store) readTemp(ctx context.Context) ([]fs.DirEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := s.root.Open(tempDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, s.failed("sweep", tempDir, readError(err))
	}
	defer func() { _ = dir.Close() }()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, s.failed("sweep", tempDir, readError(err))
	}
	return entries, nil
}
