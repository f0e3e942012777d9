package tarball

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// segmentPlace is where a gzip member lies.
type segmentPlace struct{ offset, length int64 }

// member is one unpacked gzip member.
type member struct {
	bodies map[string][]byte
	size   int64
}

// maxMemberBytes bounds the bytes of a member, as a defence against hostile input: those that
// Holdfast writes end soon after a MiB of input.
const maxMemberBytes = 64 << 20

const (
	// maxFullBytes is what the bodies of a member hold before the last one is added.
	maxFullBytes = 8 << 20
	// largeBytes of bodies are held while a member is read without waiting for others that hold as
	// much.
	largeBytes = 2 << 20
)

// gate is a semaphore: one large member at a time is held in memory.
type gate chan struct{}

// memberReading is a member that is being read.
type memberReading struct {
	*member
	limit  int64 // of a body
	gate   gate
	inside bool
}

// readMember reads one gzip member and keeps the bodies in it, second copies under another path
// left out.
func readMember(ctx context.Context, data manifest.RangeReader, at segmentPlace, l Limits, g gate) (*member, error) {
	if at.offset < 0 || at.length <= 0 || at.length > maxMemberBytes {
		return nil, fmt.Errorf("%w: gzip member at %d, %d bytes", ErrMismatch, at.offset, at.length)
	}
	rc, err := data.ReadRange(ctx, at.offset, at.length)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rc.Close() }()
	in := &watchedReader{r: rc}
	zip, err := gzip.NewReader(bufio.NewReaderSize(in, 64<<10))
	if err != nil {
		return nil, in.blameSource(err, "gzip member")
	}
	s := &memberReading{member: &member{bodies: map[string][]byte{}}, limit: l.EntryBytes, gate: g}
	defer s.leaveLargeMember()
	limit := 2*l.EntryBytes + maxMemberBytes // two copies of the largest body behind a full member
	unpacked := &boundedReader{r: zip, left: limit}
	r := tar.NewReader(unpacked)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, in.blameSource(err, "gzip member")
		}
		if err := s.readEntry(ctx, r, h); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			return nil, in.blameSource(err, h.Name)
		}
	}
	// what follows the last entry still holds the checksum
	if _, err := io.Copy(io.Discard, unpacked); err != nil {
		return nil, in.blameSource(err, "gzip member")
	}
	return s.member, nil
}

func (s *memberReading) readEntry(ctx context.Context, r io.Reader, h *tar.Header) error {
	if p, err := ParsePath(h.Name); err != nil || p.Preferred || h.Typeflag != tar.TypeReg {
		return nil //nolint:nilerr // the manifest names no such path
	}
	if h.Size > s.limit {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, h.Size, s.limit)
	}
	if s.size > maxFullBytes {
		return fmt.Errorf("%w: a gzip member of more than %d bytes", ErrTooLarge, s.size)
	}
	if err := s.enterLargeMember(ctx, s.size+h.Size); err != nil {
		return err
	}
	body := make([]byte, h.Size)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	s.bodies[h.Name] = body
	s.size += h.Size + int64(len(h.Name)) + 64
	return nil
}

// enterLargeMember waits until no other large member is read, if this one is about to be one.
func (s *memberReading) enterLargeMember(ctx context.Context, size int64) error {
	if s.inside || size <= largeBytes {
		return nil
	}
	select {
	case s.gate <- struct{}{}:
		s.inside = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *memberReading) leaveLargeMember() {
	if s.inside {
		<-s.gate
	}
}

// watchedReader distinguishes errors of the source from errors in the content.
type watchedReader struct {
	r    io.Reader
	n    int64
	err  error
	told func(n int64) // after each reading; nil if nobody asks
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.n += int64(n)
	if w.told != nil {
		w.told(w.n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// blameSource returns the source's error if it had one, else says that what is at the named place is
// corrupt.
func (w *watchedReader) blameSource(err error, what string) error {
	switch {
	case w.err != nil:
		return w.err
	case errors.Is(err, ErrTooLarge):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %s: %w", ErrCorrupt, what, err)
}

// boundedReader fails when more than left bytes are read, and notices what came last.
type boundedReader struct {
	r     io.Reader
	left  int64
	zeros int64 // zero bytes at the end of what was read
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: unpacks to more than allowed", ErrTooLarge)
	}
	i := n
	for i > 0 && p[i-1] == 0 {
		i--
	}
	if i > 0 {
		b.zeros = 0
	}
	b.zeros += int64(n - i)
	return n, err
}
