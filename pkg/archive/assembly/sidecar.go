package assembly

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
)

// sidecar yields the entries of one sidecar with offsets in the tarball, and hands its notes on
// when they are through.
type sidecar struct {
	file  *os.File
	in    *part.SidecarReader
	base  int64 // offset of the part in the tarball
	order uint32
	notes *logNotes
	value []byte
	key   string
}

// openSidecar reads a sidecar of the work dir, which it closes.
func openSidecar(f *os.File, p PartRef) (*sidecar, error) {
	in, err := part.OpenSidecar(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sidecar %s: %w", p.SidecarKey, err), f.Close())
	}
	return &sidecar{file: f, in: in, key: p.SidecarKey}, nil
}

// copySidecar copies a sidecar into the work dir: a merge reads some sidecars much later than
// others, and no store keeps a connection open for that long.
func copySidecar(ctx context.Context, store Getter, p PartRef, dir string) (_ *os.File, err error) {
	f, err := os.CreateTemp(dir, "merge-*")
	if err != nil {
		return nil, fmt.Errorf("sidecar %s: %w", p.SidecarKey, err)
	}
	err = os.Remove(f.Name()) // unlinked, so that nothing is left behind
	if err == nil {
		err = fetchSidecar(ctx, store, p, f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sidecar %s: %w", p.SidecarKey, err), f.Close())
	}
	return f, nil
}

func fetchSidecar(ctx context.Context, store Getter, p PartRef, f *os.File) error {
	rc, err := store.Get(ctx, p.SidecarKey)
	if err != nil {
		return err
	}
	defer func() { _ = rc.Close() }()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), rc); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); p.SidecarSHA256 != "" && got != p.SidecarSHA256 {
		return fmt.Errorf("%w: SHA-256 is %s, want %s", part.ErrCorrupt, got, p.SidecarSHA256)
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// Next returns the next entry. Its value begins with the offset of the part in the tarball.
func (s *sidecar) Next() (key, value []byte, err error) {
	key, value, err = s.in.Next()
	if errors.Is(err, io.EOF) && !errors.Is(err, part.ErrCorrupt) {
		return nil, nil, s.finishSidecar()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("sidecar %s: %w", s.key, err)
	}
	s.value = binary.AppendUvarint(s.value[:0], uint64(s.base)) //nolint:gosec // not negative
	s.value = append(s.value, value...)
	return key, s.value, nil
}

// finishSidecar takes the notes and returns io.EOF.
func (s *sidecar) finishSidecar() error {
	for {
		n, err := s.in.Note()
		if errors.Is(err, io.EOF) && !errors.Is(err, part.ErrCorrupt) {
			return io.EOF
		}
		if err == nil {
			err = s.notes.addEntry(&n, s.order)
		}
		if err != nil {
			return fmt.Errorf("sidecar %s: %w", s.key, err)
		}
	}
}

func (s *sidecar) Close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}
