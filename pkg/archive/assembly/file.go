package assembly

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
)

// output is a file of the work dir that is hashed while it is written, gzipped or as it is.
type output struct {
	file *os.File
	buf  *bufio.Writer
	sum  hash.Hash
	size int64
	zip  *gzip.Writer // nil: as it is
}

func newOutput(dir, pattern string, zipped bool) (*output, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", pattern, err)
	}
	o := &output{file: f, sum: sha256.New()}
	o.buf = bufio.NewWriterSize(raw{o}, 64<<10)
	if zipped {
		if o.zip, err = gzip.NewWriterLevel(o.buf, gzip.BestSpeed); err != nil {
			return nil, errors.Join(err, o.discard())
		}
	}
	return o, nil
}

type raw struct{ o *output }

func (r raw) Write(p []byte) (int, error) {
	n, err := r.o.file.Write(p)
	_, _ = r.o.sum.Write(p[:n]) // a hash never fails
	r.o.size += int64(n)
	return n, err
}

func (o *output) Write(p []byte) (int, error) {
	if o.zip != nil {
		return o.zip.Write(p)
	}
	return o.buf.Write(p)
}

func (o *output) finish() (part.File, error) {
	var err error
	if o.zip != nil {
		err = o.zip.Close()
	}
	if err = errors.Join(err, o.buf.Flush(), o.file.Close()); err != nil {
		return part.File{}, fmt.Errorf("write %s: %w", o.file.Name(), errors.Join(err, os.Remove(o.file.Name())))
	}
	return part.File{Path: o.file.Name(), Size: o.size, SHA256: hex.EncodeToString(o.sum.Sum(nil))}, nil
}

func (o *output) discard() error { return errors.Join(o.file.Close(), os.Remove(o.file.Name())) }

var _ io.Writer = (*output)(nil)
