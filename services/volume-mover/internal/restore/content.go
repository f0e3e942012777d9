package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kopia/kopia/snapshot"

	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
)

const (
	// copyBytes is the size of the buffer of a copy.
	copyBytes = 128 << 10
	// holeBytes is the smallest hole: a block of most file systems.
	holeBytes = 4 << 10
)

// zeros is a hole.
var zeros [holeBytes]byte

// objectReader reads an object of the repository. It distinguishes errors of reading from those of
// writing, and counts.
type objectReader struct {
	io.Reader
	ctx   context.Context
	count func(int64)
	n     int64
	err   error
}

func (r *objectReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.Reader.Read(p)
	r.n += int64(n)
	r.count(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// copyObject reads the entry's object with read, then calls finish. damage is why the object cannot be
// read as it was written; err is any other failure.
func (w *snapshotWriter) copyObject(ctx context.Context, e *snapshot.DirEntry, read func(io.Reader) error, finish func() error) (damage, err error) {
	content, err := w.repository.OpenObject(ctx, e.ObjectID)
	if err != nil {
		return damageOf(ctx, err)
	}
	defer func() { _ = content.Close() }()
	r := &objectReader{Reader: content, ctx: ctx, count: w.rec.AddDone}
	err = read(r)
	switch {
	case r.err != nil:
		return damageOf(ctx, r.err)
	case err != nil:
		return nil, err
	case r.n != e.FileSize:
		return fmt.Errorf("%w: it has %d bytes, and its directory says %d", repository.ErrDamaged, r.n, e.FileSize), nil
	}
	return nil, finish()
}

// damageOf says whether an error of reading is damage, or a failure.
func damageOf(ctx context.Context, err error) (damage, failure error) {
	if err = repository.ReadError(ctx, err); errors.Is(err, repository.ErrDamaged) {
		return err, nil
	}
	return nil, err
}

// copySparse copies r to the start of f, which is empty, and leaves holes where there are zeros. The
// length of f is set afterwards. size is what r is expected to have.
func copySparse(f *os.File, r io.Reader, size int64) error {
	buf := make([]byte, max(1, min(copyBytes, size+1))) // one more finds the end
	for offset := int64(0); ; {
		n, err := io.ReadFull(r, buf)
		for at := 0; at < n; {
			end := dataEnd(buf[at:n])
			if end > 0 {
				if _, err := f.WriteAt(buf[at:at+end], offset+int64(at)); err != nil {
					return err
				}
			}
			at += end
			at += min(holeBytes, n-at) // a hole, or nothing at the end
		}
		offset += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// dataEnd is how many bytes at the start of p are to be written: up to the first block of zeros.
func dataEnd(p []byte) int {
	for at := 0; at < len(p); at += holeBytes {
		if block := p[at:min(at+holeBytes, len(p))]; bytes.Equal(block, zeros[:len(block)]) {
			return at
		}
	}
	return len(p)
}

// errSecondEntry means that a snapshot of a device has more than the device.
var errSecondEntry = errors.New("a second entry")

// restoreDevice writes the only file of the snapshot to f from the start.
func (w *snapshotWriter) restoreDevice(ctx context.Context, top *snapshot.DirEntry, f *os.File) error {
	var device *snapshot.DirEntry
	err := w.repository.EachEntry(ctx, top, func(e *snapshot.DirEntry) error {
		if device != nil {
			return errSecondEntry
		}
		device = e
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errSecondEntry):
		return err
	case err != nil || device == nil || device.Type != snapshot.EntryTypeFile:
		return errors.New("the target is a block device, and the snapshot is not that of one")
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("size of the target: %w", err)
	}
	if size < device.FileSize {
		return fmt.Errorf("the target has %d bytes, and the snapshot %d", size, device.FileSize)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	damage, err := w.copyObject(ctx, device, func(r io.Reader) error {
		n, err := io.CopyBuffer(struct{ io.Writer }{f}, r, make([]byte, copyBytes))
		w.counts.bytes, w.counts.files = n, 1
		return err
	}, f.Sync)
	return errors.Join(damage, err)
}
