package plan

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// detail is the part of a node that a plan keeps in a file: it is read only when the node is worked
// on.
type detail struct {
	name, path, uid string
	// size is the length of the body in bytes, offset and length are those of its gzip member.
	size, offset, length int64
	sha256               []byte // 32 bytes, or none
	links                []link
}

const (
	// perBlock is how many details are read at once: neighbours come one after the other.
	perBlock = 32
	// cachedBlocks are kept in memory, of 5 KiB each where names have 60 characters.
	cachedBlocks = 256
	// largestBlock is what is kept of one, in bytes: names of 253 characters, and owners, for each
	// of its objects.
	largestBlock = 64 << 10
	spillBuffer  = 64 << 10
)

// spill is a file of details in the order of their nodes. Once complete it is safe for concurrent
// use.
type spill struct {
	file   *os.File
	starts []int64 // of each block, and where the last one ends
	count  int
	cache  [cachedBlocks]cached

	mu  sync.Mutex
	err error // the first one that get could not return
}

// cached is a block in memory.
type cached struct {
	mu    sync.Mutex
	block int32 // one more than its number
	data  []byte
}

// spiller writes a spill.
type spiller struct {
	*spill
	out  *bufio.Writer
	size int64
	buf  []byte
}

// newSpill begins a file in dir, which has no name any more.
func newSpill(dir string) (*spiller, error) {
	file, err := os.CreateTemp(dir, "plan-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &spiller{spill: &spill{file: file}, out: bufio.NewWriterSize(file, spillBuffer)}, nil
}

// add appends an encoded detail.
func (s *spiller) add(encoded []byte) error {
	if s.count%perBlock == 0 {
		s.starts = append(s.starts, s.size)
	}
	s.count++
	s.buf = binary.AppendUvarint(s.buf[:0], uint64(len(encoded)))
	s.size += int64(len(s.buf) + len(encoded))
	_, err := s.out.Write(s.buf)
	if err == nil {
		_, err = s.out.Write(encoded)
	}
	return err
}

// complete ends the writing.
func (s *spiller) complete() (*spill, error) {
	s.starts = append(s.starts, s.size)
	return s.spill, s.out.Flush()
}

// get returns the detail of node i. One that cannot be read is the zero detail, and failed returns
// the reason from then on.
func (s *spill) get(i int32) detail {
	d, err := s.read(i)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err == nil {
			s.err = fmt.Errorf("read the plan in the work directory: %w", err)
		}
	}
	return d
}

// failed returns why a detail could not be read, nil if all could.
func (s *spill) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *spill) read(i int32) (detail, error) {
	block := i / perBlock
	if s.starts[block+1]-s.starts[block] > largestBlock {
		data := make([]byte, s.starts[block+1]-s.starts[block])
		if _, err := s.file.ReadAt(data, s.starts[block]); err != nil {
			return detail{}, err
		}
		return within(data, i%perBlock)
	}
	c := &s.cache[block%cachedBlocks]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.block != block+1 {
		n := int(s.starts[block+1] - s.starts[block])
		if cap(c.data) < n {
			c.data = make([]byte, n)
		}
		c.data, c.block = c.data[:n], 0
		if _, err := s.file.ReadAt(c.data, s.starts[block]); err != nil {
			return detail{}, err
		}
		c.block = block + 1
	}
	return within(c.data, i%perBlock)
}

// within returns an entry of a block.
func within(block []byte, entry int32) (d detail, err error) {
	for range entry {
		if _, block, err = cutBytes(block); err != nil {
			return d, err
		}
	}
	encoded, _, err := cutBytes(block)
	if err != nil {
		return d, err
	}
	return decodeDetail(encoded)
}

// each calls do with every detail, in order.
func (s *spill) each(do func(i int32, d *detail)) error {
	in := bufio.NewReaderSize(io.NewSectionReader(s.file, 0, s.starts[len(s.starts)-1]), spillBuffer)
	var buf []byte
	for i := range int32(s.count) {
		n, err := binary.ReadUvarint(in)
		if err != nil {
			return err
		}
		if uint64(cap(buf)) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(in, buf); err != nil {
			return err
		}
		d, err := decodeDetail(buf)
		if err != nil {
			return err
		}
		do(i, &d)
	}
	return nil
}

func (s *spill) close() error { return s.file.Close() }
