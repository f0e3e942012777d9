package rawlist

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// spoolBytes is how much of a page is kept in memory; what follows goes into a file.
const spoolBytes = 1 << 20

// errSpool means that a page cannot be kept.
var errSpool = errors.New("keep a page")

// pageSpool keeps the beginning of a page to be read again.
type pageSpool struct {
	dir  string
	mem  bytes.Buffer
	file *os.File // nil until the memory is full
}

func newSpool(dir string) *pageSpool { return &pageSpool{dir: dir} }

// Write implements io.Writer.
func (s *pageSpool) Write(p []byte) (int, error) {
	if s.file == nil && s.mem.Len()+len(p) <= spoolBytes {
		return s.mem.Write(p)
	}
	if s.file == nil {
		file, err := os.CreateTemp(s.dir, "page-*")
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errSpool, err)
		}
		s.file = file
		if err := os.Remove(file.Name()); err != nil { // it goes with the process
			return 0, fmt.Errorf("%w: %w", errSpool, err)
		}
	}
	n, err := s.file.Write(p)
	if err != nil {
		err = fmt.Errorf("%w: %w", errSpool, err)
	}
	return n, err
}

// newReader returns what was written.
func (s *pageSpool) newReader() (io.Reader, error) {
	if s.file == nil {
		return &s.mem, nil
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("%w: %w", errSpool, err)
	}
	return io.MultiReader(&s.mem, s.file), nil
}

// close drops what was written.
func (s *pageSpool) close() {
	if s.file != nil {
		_ = s.file.Close() // it has no name any more
	}
}
