package tarball

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// localFile reads ranges of a file of the work dir.
type localFile string

func (f localFile) ReadRange(_ context.Context, off, n int64) (io.ReadCloser, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	return &section{Reader: io.NewSectionReader(file, off, n), file: file}, nil
}

type section struct {
	io.Reader
	file *os.File
}

func (s *section) Close() error { return s.file.Close() }

// localFiles opens files of the work dir by name.
type localFiles struct{ dir string }

func (l localFiles) Get(_ context.Context, key string) (io.ReadCloser, error) {
	if key != filepath.Base(key) {
		return nil, errors.New("not a file of the work dir")
	}
	return os.Open(filepath.Join(l.dir, key))
}
