package filestore

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// copyExact writes exactly size bytes of r, which must then end.
func copyExact(ctx context.Context, f *os.File, r io.Reader, size int64) error {
	if size < 0 {
		return fmt.Errorf("%w: size %d", objectstore.ErrSize, size)
	}
	n, err := io.Copy(f, io.LimitReader(&ctxReader{ctx, r}, size))
	if err != nil {
		return err
	}
	if n < size {
		return fmt.Errorf("%w: got %d bytes of %d", objectstore.ErrSize, n, size)
	}
	var one [1]byte
	switch more, err := io.ReadFull(r, one[:]); {
	case more > 0:
		return fmt.Errorf("%w: more than %d bytes", objectstore.ErrSize, size)
	case err != io.EOF:
		return err
	}
	return nil
}

// appendSource appends one piece of a composed object.
func (s *Store) appendSource(ctx context.Context, f *os.File, src objectstore.Source) error {
	if src.Data != nil {
		_, err := f.Write(src.Data)
		return err
	}
	if err := s.checkKey(ctx, src.Key); err != nil {
		return err
	}
	in, fi, err := s.openObject(src.Key)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	n := src.Length
	if n < 0 {
		n = fi.Size() - src.Offset
	}
	if src.Offset < 0 || n < 0 || src.Offset+n > fi.Size() {
		return fmt.Errorf("%w: %s: %d bytes from %d of %d", objectstore.ErrInvalidRange, src.Key, n, src.Offset, fi.Size())
	}
	if _, err := in.Seek(src.Offset, io.SeekStart); err != nil {
		return err
	}
	return copyChunks(ctx, f, in, n)
}

// copyChunks copies n bytes between files, checking ctx now and then. Plain files on both ends let
// the runtime use copy_file_range.
func copyChunks(ctx context.Context, dst, src *os.File, n int64) error {
	const chunk = 64 << 20
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		m, err := io.CopyN(dst, src, min(n, chunk))
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

// ctxReader ends a copy when the context does.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
