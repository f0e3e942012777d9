package s3store

import (
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// uploadWindow is size bytes of r from base, seekable so that the SDK can hash, send and send again.
// Windows of one reader are used one after the other.
type uploadWindow struct {
	r          io.ReadSeeker
	base, size int64
	pos        int64
}

func (w *uploadWindow) Read(p []byte) (int, error) {
	if w.pos >= w.size {
		return 0, io.EOF
	}
	n, err := w.r.Read(p[:min(int64(len(p)), w.size-w.pos)])
	w.pos += int64(n)
	if errors.Is(err, io.EOF) && w.pos < w.size {
		err = fmt.Errorf("%w: got %d bytes of %d", objectstore.ErrSize, w.pos, w.size)
	}
	return n, err
}

func (w *uploadWindow) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += w.pos
	case io.SeekEnd:
		offset += w.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	if _, err := w.r.Seek(w.base+offset, io.SeekStart); err != nil {
		return 0, err
	}
	w.pos = offset
	return offset, nil
}

// cutWindows cuts a large reader into parts of a multipart upload.
func cutWindows(r io.ReadSeeker, base, size int64) []partSource {
	step := max(singlePut, (size+maxParts-1)/maxParts)
	var parts []partSource
	for off := int64(0); off < size; off += step {
		w := &uploadWindow{r: r, base: base + off, size: min(step, size-off)}
		parts = append(parts, partSource{body: w, size: w.size})
	}
	return parts
}
