package extsort

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const runBuffer = 64 << 10

// sortedRun is a sorted file: for each record the lengths of key and value as uvarints, then both.
type sortedRun struct{ file *os.File }

// writeRun writes all records of s into a new run and closes s.
func writeRun(dir string, s Stream) (_ *sortedRun, err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	f, err := os.CreateTemp(dir, "sort-*")
	if err != nil {
		return nil, fmt.Errorf("create run: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("unlink run: %w", err), f.Close())
	}
	r := &sortedRun{file: f}
	if err := r.writeStream(s); err != nil {
		return nil, errors.Join(fmt.Errorf("write run: %w", err), f.Close())
	}
	return r, nil
}

func (r *sortedRun) writeStream(s Stream) error {
	w := bufio.NewWriterSize(r.file, runBuffer)
	var head [2 * binary.MaxVarintLen64]byte
	for {
		key, value, err := s.Next()
		if errors.Is(err, io.EOF) {
			return w.Flush()
		}
		if err != nil {
			return err
		}
		n := binary.PutUvarint(head[:], uint64(len(key)))
		n += binary.PutUvarint(head[n:], uint64(len(value)))
		// bufio keeps the first error until Flush
		_, _ = w.Write(head[:n])
		_, _ = w.Write(key)
		if _, err := w.Write(value); err != nil {
			return err
		}
	}
}

func (r *sortedRun) close() error { return r.file.Close() }

func (r *sortedRun) openStream() Stream {
	return &runStream{run: r, in: bufio.NewReaderSize(io.NewSectionReader(r.file, 0, 1<<62), runBuffer)}
}

type runStream struct {
	run    *sortedRun
	in     *bufio.Reader
	buf    []byte
	closed bool
}

func (s *runStream) Next() (key, value []byte, err error) {
	k, err := binary.ReadUvarint(s.in)
	if err != nil {
		return nil, nil, err // io.EOF at the end
	}
	v, err := binary.ReadUvarint(s.in)
	if err != nil {
		return nil, nil, io.ErrUnexpectedEOF
	}
	n := int(k + v)
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	s.buf = s.buf[:n]
	if _, err := io.ReadFull(s.in, s.buf); err != nil {
		return nil, nil, fmt.Errorf("read run: %w", err)
	}
	return s.buf[:k], s.buf[k:], nil
}

func (s *runStream) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.run.close()
}
