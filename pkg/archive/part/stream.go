package part

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"github.com/klauspost/compress/flate"
)

// apartBytes is from where on a body is compressed on its own: its second copy would lie outside
// deflate's window of 32 KiB and cost as much as the first. A chunk that begins without history can
// simply be written twice.
const apartBytes = 30 << 10

// keptBytes bounds scratch memory that outlives one large item.
const keptBytes = 1 << 20

// gzipHeader begins a member: deflate, no name, no time, unknown system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// memberPlace is where a member lies in the part.
type memberPlace struct{ offset, length int64 }

// stream writes gzip members into a file, counting and hashing what it writes. Members are framed
// here rather than by a gzip writer so that an unfinished one can be cut back to a flush.
type stream struct {
	file *os.File
	out  *bufio.Writer
	sum  hash.Hash
	n    int64 // compressed bytes so far

	level   int
	deflate *flate.Writer
	apart   *flate.Writer // nil before the first body that needs it
	chunk   spoolChunk

	open    bool
	crc     uint32
	input   int64 // bytes in the open member
	start   int64 // of the open member
	members []memberPlace
}

// streamMark is a state to come back to.
type streamMark struct {
	n       int64
	sum     hash.Cloner
	open    bool
	crc     uint32
	input   int64
	start   int64
	members int
}

func newStream(dir, pattern string, level int) (*stream, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, fmt.Errorf("create part: %w", err)
	}
	s := &stream{file: f, sum: sha256.New(), level: level}
	s.out = bufio.NewWriterSize(tee{s}, 64<<10)
	if s.deflate, err = borrowCompressor(level, counter{s}); err != nil {
		return nil, errors.Join(err, s.discardFile())
	}
	return s, nil
}

// idle holds compressors by level: making one costs more than a small part.
var idle [flate.BestCompression + 1]sync.Pool

// borrowCompressor returns a compressor that writes to w.
func borrowCompressor(level int, w io.Writer) (*flate.Writer, error) {
	if level > 0 && level < len(idle) {
		if c, ok := idle[level].Get().(*flate.Writer); ok {
			c.Reset(w)
			return c, nil
		}
	}
	c, err := flate.NewWriter(w, level)
	if err != nil {
		return nil, fmt.Errorf("compression level %d: %w", level, err)
	}
	return c, nil
}

// releaseCompressors gives the compressors back; the stream compresses nothing more.
func (s *stream) releaseCompressors() {
	for _, c := range []*flate.Writer{s.deflate, s.apart} {
		if c != nil && s.level > 0 && s.level < len(idle) {
			c.Reset(io.Discard) // it must not keep the stream
			idle[s.level].Put(c)
		}
	}
	s.deflate, s.apart = nil, nil
}

// tee writes to the file and its hash.
type tee struct{ s *stream }

func (t tee) Write(p []byte) (int, error) {
	n, err := t.s.file.Write(p)
	_, _ = t.s.sum.Write(p[:n]) // a hash never fails
	return n, err
}

// counter takes what the compressor makes.
type counter struct{ s *stream }

func (c counter) Write(p []byte) (int, error) {
	c.s.n += int64(len(p))
	return c.s.out.Write(p)
}

// spoolChunk holds one body compressed on its own.
type spoolChunk struct{ b []byte }

func (c *spoolChunk) Write(p []byte) (int, error) {
	c.b = append(c.b, p...)
	return len(p), nil
}

// openMember opens a member if none is open.
func (s *stream) openMember() error {
	if s.open {
		return nil
	}
	s.open, s.crc, s.input, s.start = true, 0, 0, s.n
	s.deflate.Reset(counter{s})
	_, err := counter{s}.Write(gzipHeader)
	return err
}

// write compresses p into the open member.
func (s *stream) write(p []byte) error {
	s.crc = crc32.Update(s.crc, crc32.IEEETable, p)
	s.input += int64(len(p))
	_, err := s.deflate.Write(p)
	return err
}

// compressApart compresses the pieces without history into s.chunk.
func (s *stream) compressApart(pieces [][]byte) error {
	if cap(s.chunk.b) > keptBytes {
		s.chunk.b = nil
	}
	s.chunk.b = s.chunk.b[:0]
	if s.apart == nil {
		var err error
		if s.apart, err = borrowCompressor(s.level, &s.chunk); err != nil {
			return err
		}
	}
	s.apart.Reset(&s.chunk)
	for _, p := range pieces {
		if _, err := s.apart.Write(p); err != nil {
			return err
		}
	}
	return s.apart.Flush()
}

// writeApart writes the compressed chunk of the pieces into the open member. What follows is
// compressed without history, since the compressor did not see them.
func (s *stream) writeApart(pieces [][]byte) error {
	if err := s.deflate.Flush(); err != nil {
		return err
	}
	for _, p := range pieces {
		s.crc = crc32.Update(s.crc, crc32.IEEETable, p)
		s.input += int64(len(p))
	}
	if _, err := (counter{s}).Write(s.chunk.b); err != nil {
		return err
	}
	s.deflate.Reset(counter{s})
	return nil
}

// closeMember closes the open member.
func (s *stream) closeMember() error {
	if !s.open {
		return nil
	}
	if err := s.deflate.Close(); err != nil {
		return err
	}
	tail := binary.LittleEndian.AppendUint32(nil, s.crc)
	tail = binary.LittleEndian.AppendUint32(tail, uint32(s.input)) //nolint:gosec // RFC 1952: modulo 2^32
	if _, err := (counter{s}).Write(tail); err != nil {
		return err
	}
	s.open = false
	s.members = append(s.members, memberPlace{offset: s.start, length: s.n - s.start})
	return nil
}

// flushFile brings everything into the file, ending in the middle of a member at a byte boundary.
func (s *stream) flushFile() error {
	if s.open {
		if err := s.deflate.Flush(); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

func (s *stream) markPosition() (streamMark, error) {
	if err := s.flushFile(); err != nil {
		return streamMark{}, err
	}
	sum, err := cloneHash(s.sum)
	if err != nil {
		return streamMark{}, err
	}
	return streamMark{n: s.n, sum: sum, open: s.open, crc: s.crc, input: s.input, start: s.start, members: len(s.members)}, nil
}

func cloneHash(h any) (hash.Cloner, error) {
	c, ok := h.(hash.Cloner)
	if !ok {
		return nil, fmt.Errorf("hash state: %w", errors.ErrUnsupported)
	}
	return c.Clone()
}

// rewindTo cuts the file back to m. The compressor continues without history, which a reader does not
// notice.
func (s *stream) rewindTo(m streamMark) error {
	sum, err := cloneHash(m.sum)
	if err != nil {
		return err
	}
	if err := truncateFile(s.file, m.n); err != nil {
		return err
	}
	s.out.Reset(tee{s})
	s.deflate.Reset(counter{s})
	s.n, s.sum, s.open, s.crc, s.input, s.start, s.members = m.n, sum, m.open, m.crc, m.input, m.start, s.members[:m.members]
	return nil
}

func truncateFile(f *os.File, n int64) error {
	if err := f.Truncate(n); err != nil {
		return err
	}
	_, err := f.Seek(n, io.SeekStart)
	return err
}

// finishFile closes the member and the file.
func (s *stream) finishFile() (File, error) {
	if err := errors.Join(s.closeMember(), s.out.Flush()); err != nil {
		return File{}, err
	}
	s.releaseCompressors()
	f := File{Path: s.file.Name(), Size: s.n, SHA256: hex.EncodeToString(s.sum.Sum(nil))}
	return f, s.file.Close()
}

func (s *stream) discardFile() error {
	s.releaseCompressors()
	return errors.Join(s.file.Close(), os.Remove(s.file.Name()))
}
