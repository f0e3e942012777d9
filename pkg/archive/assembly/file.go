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

// outputFile is a file of the work dir that is hashed while it is written, gzipped or as it is.
type outputFile struct {
	file *os.File
	buf  *bufio.Writer
	sum  hash.Hash
	size int64
	zip  *gzip.Writer // nil: as it is
}

func newOutput(dir, pattern string, zipped bool) (*outputFile, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", pattern, err)
	}
	o := &outputFile{file: f, sum: sha256.New()}
	o.buf = bufio.NewWriterSize(rawFile{o}, 64<<10)
	if zipped {
		if o.zip, err = gzip.NewWriterLevel(o.buf, gzip.BestSpeed); err != nil {
			return nil, errors.Join(err, o.discardOutput())
		}
	}
	return o, nil
}

type rawFile struct{ o *outputFile }

func (r rawFile) Write(p []byte) (int, error) {
	n, err := r.o.file.Write(p)
	_, _ = r.o.sum.Write(p[:n]) // a hash never fails
	r.o.size += int64(n)
	return n, err
}

func (o *outputFile) Write(p []byte) (int, error) {
	if o.zip != nil {
		return o.zip.Write(p)
	}
	return o.buf.Write(p)
}

func (o *outputFile) finishOutput() (part.File, error) {
	var err error
	if o.zip != nil {
		err = o.zip.Close()
	}
	if err = errors.Join(err, o.buf.Flush(), o.file.Close()); err != nil {
		return part.File{}, fmt.Errorf("write %s: %w", o.file.Name(), errors.Join(err, os.Remove(o.file.Name())))
	}
	return part.File{Path: o.file.Name(), Size: o.size, SHA256: hex.EncodeToString(o.sum.Sum(nil))}, nil
}

func (o *outputFile) discardOutput() error {
	return errors.Join(o.file.Close(), os.Remove(o.file.Name()))
}

var _ io.Writer = (*outputFile)(nil)
