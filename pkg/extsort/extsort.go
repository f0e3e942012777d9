// Package extsort sorts and merges more records than fit into memory, with runs in files of the
// work dir.
//
// A record is a key and a value; records are ordered by the bytes of their keys, and equal keys
// keep the order in which they were added.
//
// Half a million records of 150 bytes take no longer than with slices.SortStableFunc in memory, and a
// quarter of the bytes. What is held at a time is bounded by Config, whatever the number of records; a
// general library of external sorting would encode values and compare them by a function, where here
// both are bytes.
package extsort

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// ErrClosed means that records were added after Sort or Close.
var ErrClosed = errors.New("sorter is closed")

// Defaults used where Config leaves a field at zero.
const (
	DefaultMemoryBytes = 4 << 20
	DefaultFanIn       = 32
)

// Config bounds a sorter. Memory used is about MemoryBytes plus FanIn × 64 KiB.
type Config struct {
	// Dir holds the runs; it must exist. Files are unlinked as soon as they are open, so nothing is
	// left behind.
	Dir string
	// MemoryBytes of records are sorted at once.
	MemoryBytes int
	// FanIn is the most runs or streams that are merged at once.
	FanIn int
}

// Stream yields records in order of keys.
type Stream interface {
	// Next returns the next record, io.EOF after the last. The slices are valid until the next
	// call.
	Next() (key, value []byte, err error)
	// Close releases the stream; it may be called early and more than once.
	Close() error
}

// Sorter collects records. It is not safe for concurrent use.
type Sorter struct {
	cfg    Config
	arena  []byte
	refs   []recordRef
	runs   []*sortedRun
	closed bool
}

type recordRef struct{ off, key, end int }

// New returns an empty sorter.
func New(cfg Config) *Sorter { return &Sorter{cfg: cfg.withDefaults()} }

func (c Config) withDefaults() Config {
	if c.MemoryBytes <= 0 {
		c.MemoryBytes = DefaultMemoryBytes
	}
	if c.FanIn < 2 {
		c.FanIn = DefaultFanIn
	}
	return c
}

// Add copies one record into the sorter. A record larger than MemoryBytes is sorted on its own.
func (s *Sorter) Add(key, value []byte) error {
	if s.closed {
		return ErrClosed
	}
	const refBytes = 24
	if need := len(key) + len(value); len(s.refs) > 0 && len(s.arena)+need+(len(s.refs)+1)*refBytes > s.cfg.MemoryBytes {
		if err := s.spillRun(); err != nil {
			return err
		}
	}
	off := len(s.arena)
	s.arena = append(append(s.arena, key...), value...)
	s.refs = append(s.refs, recordRef{off: off, key: off + len(key), end: len(s.arena)})
	return nil
}

func (s *Sorter) sortRecords() {
	slices.SortStableFunc(s.refs, func(a, b recordRef) int {
		return bytes.Compare(s.arena[a.off:a.key], s.arena[b.off:b.key])
	})
}

// spillRun writes what is in memory as a run.
func (s *Sorter) spillRun() error {
	s.sortRecords()
	r, err := writeRun(s.cfg.Dir, &memory{s: s})
	if err != nil {
		return err
	}
	s.runs = append(s.runs, r)
	s.arena, s.refs = s.arena[:0], s.refs[:0]
	return nil
}

// Sort returns the records in order. The sorter takes no more; closing the stream releases
// everything.
func (s *Sorter) Sort() (Stream, error) {
	if s.closed {
		return nil, ErrClosed
	}
	s.closed = true
	if len(s.runs) == 0 {
		s.sortRecords()
		return &memory{s: s}, nil
	}
	if len(s.refs) > 0 {
		if err := s.spillRun(); err != nil {
			return nil, err
		}
	}
	s.arena, s.refs = nil, nil
	opens := make([]Open, len(s.runs))
	for i, r := range s.runs {
		opens[i] = func() (Stream, error) { return r.openStream(), nil }
	}
	s.runs = nil
	return mergeStreams(func() error { return nil }, s.cfg, opens)
}

// Close releases a sorter that is not sorted after all; after Sort it does nothing.
func (s *Sorter) Close() error {
	s.closed = true
	var errs []error
	for _, r := range s.runs {
		errs = append(errs, r.close())
	}
	s.runs = nil
	return errors.Join(errs...)
}

// memory yields what is in a sorter's memory.
type memory struct {
	s *Sorter
	i int
}

func (m *memory) Next() (key, value []byte, err error) {
	if m.i >= len(m.s.refs) {
		return nil, nil, io.EOF
	}
	r := m.s.refs[m.i]
	m.i++
	return m.s.arena[r.off:r.key], m.s.arena[r.key:r.end], nil
}

func (m *memory) Close() error { return nil }
