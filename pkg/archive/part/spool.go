package part

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// spool is an unlinked file of records, so that a crash leaves nothing behind.
type spool struct {
	file *os.File
	out  *bufio.Writer
	n    int64
	head [2 * binary.MaxVarintLen64]byte
}

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, "spool-*")
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("unlink spool: %w", err), f.Close())
	}
	return &spool{file: f, out: bufio.NewWriterSize(f, 16<<10)}, nil
}

// addText appends one text.
func (s *spool) addText(text []byte) error {
	n := binary.PutUvarint(s.head[:], uint64(len(text)))
	return s.writeText(n, text, nil)
}

// addPair appends a key and a value.
func (s *spool) addPair(key, value []byte) error {
	n := binary.PutUvarint(s.head[:], uint64(len(key)))
	n += binary.PutUvarint(s.head[n:], uint64(len(value)))
	return s.writeText(n, key, value)
}

func (s *spool) writeText(head int, a, b []byte) error {
	s.n += int64(head + len(a) + len(b))
	_, _ = s.out.Write(s.head[:head]) // bufio keeps the first error
	_, _ = s.out.Write(a)
	_, err := s.out.Write(b)
	return err
}

func (s *spool) flushBuffer() error { return s.out.Flush() }

func (s *spool) rewindTo(n int64) error {
	if err := truncateFile(s.file, n); err != nil {
		return err
	}
	s.out.Reset(s.file)
	s.n = n
	return nil
}

// openReader returns everything written, from the start.
func (s *spool) openReader() (*bufio.Reader, error) {
	if err := s.flushBuffer(); err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(io.NewSectionReader(s.file, 0, s.n), 64<<10), nil
}

func (s *spool) close() error {
	if s == nil {
		return nil
	}
	return s.file.Close()
}

// texts reads length-prefixed texts into one buffer.
type texts struct {
	in    *bufio.Reader
	limit uint64
	buf   []byte
}

// nextTexts reads n texts, whose lengths come first. io.EOF is returned only where a record would begin.
func (t *texts) nextTexts(n int) ([][]byte, error) {
	var lengths [2]uint64
	total := uint64(0)
	for i := range n {
		v, err := binary.ReadUvarint(t.in)
		if err != nil {
			if i > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if v > t.limit {
			return nil, fmt.Errorf("%w: record of %d bytes", ErrCorrupt, v)
		}
		lengths[i] = v
		total += v
	}
	if uint64(cap(t.buf)) < total {
		t.buf = make([]byte, total+total/2)
	}
	t.buf = t.buf[:total]
	if _, err := io.ReadFull(t.in, t.buf); err != nil {
		return nil, fmt.Errorf("record: %w", io.ErrUnexpectedEOF)
	}
	return [][]byte{t.buf[:lengths[0]], t.buf[lengths[0]:]}[:n], nil
}
