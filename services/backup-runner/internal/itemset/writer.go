package itemset

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
)

// SpoolWriter writes one file. It is not safe for concurrent use.
type SpoolWriter struct {
	file    *os.File
	out     *bufio.Writer
	n       int64
	items   int
	record  []byte // scratch
	scratch []byte // scratch
}

// SpoolMark is a place in a file to come back to.
type SpoolMark struct {
	n     int64
	items int
}

// CreateSpool begins a file in dir. Finish or Discard ends it.
func CreateSpool(dir string) (*SpoolWriter, error) {
	f, err := os.CreateTemp(dir, "held-*")
	if err != nil {
		return nil, fmt.Errorf("write an item spool: %w", err)
	}
	return &SpoolWriter{file: f, out: bufio.NewWriterSize(f, 64<<10)}, nil
}

// Path returns where the file is.
func (w *SpoolWriter) Path() string { return w.file.Name() }

// Items returns the number of objects written.
func (w *SpoolWriter) Items() int { return w.items }

// Size returns the bytes written, some of which may not be in the file yet.
func (w *SpoolWriter) Size() int64 { return w.n }

// Add writes an object and returns where it is.
func (w *SpoolWriter) Add(it *SpooledItem) (offset int64, err error) {
	w.record, w.scratch = appendRecord(w.record[:0], it, w.scratch)
	if _, err := w.out.Write(w.record); err != nil {
		return 0, fmt.Errorf("write an item spool: %w", err)
	}
	offset = w.n
	w.n += int64(len(w.record))
	w.items++
	if cap(w.record) > keptBytes {
		w.record, w.scratch = nil, nil
	}
	return offset, nil
}

// keptBytes bounds scratch memory that outlives one large object.
const keptBytes = 1 << 20

// Mark returns the present end.
func (w *SpoolWriter) Mark() SpoolMark { return SpoolMark{n: w.n, items: w.items} }

// Rewind drops what was written after m.
func (w *SpoolWriter) Rewind(m SpoolMark) error {
	err := w.out.Flush()
	if err == nil {
		err = w.file.Truncate(m.n)
	}
	if err == nil {
		_, err = w.file.Seek(m.n, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("write an item spool: %w", err)
	}
	w.n, w.items = m.n, m.items
	return nil
}

// Finish closes the file, which stays where it is, and describes it.
func (w *SpoolWriter) Finish() (part.File, error) {
	sum := sha256.New()
	err := w.out.Flush()
	if err == nil {
		_, err = w.file.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = io.Copy(sum, w.file)
	}
	if err := errors.Join(err, w.file.Close()); err != nil {
		return part.File{}, fmt.Errorf("write an item spool: %w", err)
	}
	return part.File{Path: w.file.Name(), Size: w.n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// Discard removes the file. It is best effort, like the removal of all work files.
func (w *SpoolWriter) Discard() {
	_ = w.file.Close()
	_ = os.Remove(w.file.Name())
}
