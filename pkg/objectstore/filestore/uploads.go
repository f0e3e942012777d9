package filestore

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

var _ objectstore.UploadSweeper = (*Store)(nil)

// SweepUploads implements objectstore.UploadSweeper: it removes temporary files. Begun is when a
// file was last written to. Keys of more than about 200 bytes are not remembered; such files are
// removed by Open a day later.
func (s *Store) SweepUploads(ctx context.Context, prefix string, abandoned func(objectstore.Upload) (bool, error)) (int, error) {
	if err := objectstore.CheckPrefix(prefix); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	entries, err := s.temp.listTemp()
	if err != nil {
		return 0, s.opError("sweep", tempDir, readError(err))
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
			return swept, s.opError("sweep", key, readError(err))
		}
		if ok, err := abandoned(objectstore.Upload{Key: key, Begun: fi.ModTime()}); err != nil {
			return swept, err
		} else if !ok {
			continue
		}
		if err := s.temp.removeTemp(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return swept, s.opError("sweep", key, writeError(err))
		}
		swept++
	}
	s.temp.removeDir()
	return swept, nil
}
