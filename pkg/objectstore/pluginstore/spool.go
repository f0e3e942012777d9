package pluginstore

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// maxCopies bounds the files that are open at once.
const maxCopies = 32

// objectSpool keeps copies of objects that are read by ranges, in files without a name. Safe for
// concurrent use.
type objectSpool struct {
	open  func(ctx context.Context, key string) (io.ReadCloser, error)
	dir   string
	limit int64
	keys  Locks // one goroutine at a time copies an object

	mu      sync.Mutex
	copies  []*spooledObject // the least recently used first
	bytes   int64            // of copies
	flights map[string]*flight
	closed  bool
}

// flight is a copy that is being made.
type flight struct{ stale bool }

// spooledObject is one object as it was read. file is nil when it is larger than the spool.
type spooledObject struct {
	key  string
	sum  contentDigest
	file *os.File

	mu    sync.Mutex
	users int // the spool is one
}

// lookupCopy returns a copy that is there; the caller releases it.
func (s *objectSpool) lookupCopy(key string) (*spooledObject, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.copies, func(h *spooledObject) bool { return h.key == key })
	if i < 0 {
		return nil, false
	}
	h := s.copies[i]
	s.copies = append(slices.Delete(s.copies, i, i+1), h)
	h.addUser()
	return h, true
}

// fetchCopy reads the whole object unless a copy is there; the caller releases it.
func (s *objectSpool) fetchCopy(ctx context.Context, key string) (*spooledObject, error) {
	release, err := s.keys.acquireName(ctx, key)
	if err != nil {
		return nil, err
	}
	defer release()
	if h, ok := s.lookupCopy(key); ok {
		return h, nil
	}
	f := &flight{}
	s.mu.Lock()
	s.flights[key] = f
	s.mu.Unlock()
	h, err := s.copyObject(ctx, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flights, key)
	if err != nil {
		return nil, err
	}
	if !f.stale && !s.closed {
		s.keepCopy(h)
	}
	return h, nil
}

// copyObject copies the object. What does not fit is measured all the same.
func (s *objectSpool) copyObject(ctx context.Context, key string) (*spooledObject, error) {
	rc, err := s.open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rc.Close() }()
	out := &limitedFile{left: s.limit}
	out.createFile(s.dir)
	m := newMeasure(rc)
	if _, err := io.Copy(out, m); err != nil {
		out.closeFile()
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	return &spooledObject{key: key, sum: m.contentSum(), file: out.file, users: 1}, nil
}

// keepCopy adds a copy and drops those used longest ago. The caller holds the lock.
func (s *objectSpool) keepCopy(h *spooledObject) {
	h.addUser()
	s.copies = append(s.copies, h)
	s.bytes += h.diskCost()
	for len(s.copies) > maxCopies || s.bytes > s.limit {
		s.removeCopy(0)
	}
}

// removeCopy takes a copy out. The caller holds the lock.
func (s *objectSpool) removeCopy(i int) {
	h := s.copies[i]
	s.copies = slices.Delete(s.copies, i, i+1)
	s.bytes -= h.diskCost()
	h.releaseUser()
}

// forgetObject drops what is known of an object that is being written.
func (s *objectSpool) forgetObject(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.flights[key]; ok {
		f.stale = true
	}
	if i := slices.IndexFunc(s.copies, func(h *spooledObject) bool { return h.key == key }); i >= 0 {
		s.removeCopy(i)
	}
}

func (s *objectSpool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for len(s.copies) > 0 {
		s.removeCopy(0)
	}
}

func (h *spooledObject) diskCost() int64 {
	if h.file == nil {
		return 0
	}
	return h.sum.size
}

func (h *spooledObject) addUser() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users++
}

// releaseUser ends a use; the last one frees the disk.
func (h *spooledObject) releaseUser() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users == 0 && h.file != nil {
		_ = h.file.Close() // it has no name and no reader reads it again
	}
}

// sectionReader reads a range, cut at the end, and takes over the use.
func (h *spooledObject) sectionReader(off, n int64) io.ReadCloser {
	off = min(off, h.sum.size)
	if left := h.sum.size - off; n < 0 || n > left {
		n = left
	}
	return &section{SectionReader: io.NewSectionReader(h.file, off, n), of: h}
}

type section struct {
	*io.SectionReader
	of   *spooledObject
	once sync.Once
}

// Close gives the copy back.
func (s *section) Close() error {
	s.once.Do(s.of.releaseUser)
	return nil
}

// limitedFile is a file that takes as much as it may and as the disk has; after that it is gone, and
// the rest goes nowhere.
type limitedFile struct {
	file *os.File
	left int64
}

func (l *limitedFile) createFile(dir string) {
	file, err := os.CreateTemp(dir, "object-")
	if err != nil {
		return
	}
	l.file = file
	if err := os.Remove(file.Name()); err != nil {
		l.closeFile()
	}
}

func (l *limitedFile) closeFile() {
	if l.file != nil {
		_ = l.file.Close() // its content is not needed
		l.file = nil
	}
}

// Write never fails: a copy is a convenience.
func (l *limitedFile) Write(p []byte) (int, error) {
	if l.file == nil {
		return len(p), nil
	}
	if l.left -= int64(len(p)); l.left < 0 {
		l.closeFile()
		return len(p), nil
	}
	if _, err := l.file.Write(p); err != nil {
		l.closeFile()
	}
	return len(p), nil
}
