package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// mergePieces reads pieces into one buffer; plan bounds their sum.
func mergePieces(ctx context.Context, from objectstore.Reader, pieces []objectstore.Source) ([]byte, error) {
	var size int64
	for _, p := range pieces {
		size += sourceLength(p)
	}
	data := make([]byte, 0, size)
	for _, p := range pieces {
		if p.Data != nil {
			data = append(data, p.Data...)
			continue
		}
		at := len(data)
		data = data[:at+int(p.Length)]
		if err := readFull(ctx, from, p, data[at:]); err != nil {
			return nil, err
		}
	}
	return data, nil
}

func readFull(ctx context.Context, from objectstore.Reader, p objectstore.Source, into []byte) error {
	rc, err := from.GetRange(ctx, p.Key, p.Offset, p.Length)
	if err != nil {
		return err
	}
	defer func() { _ = rc.Close() }()
	_, err = io.ReadFull(rc, into)
	if errors.Is(err, io.EOF) && len(into) == 0 {
		return nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %s: %d bytes from %d are not there", objectstore.ErrInvalidRange, p.Key, p.Length, p.Offset)
	}
	return err
}

// remoteSource reads a range of an object and can go back, by opening it again.
type remoteSource struct {
	ctx  context.Context
	from objectstore.Reader
	src  objectstore.Source
	pos  int64
	rc   io.ReadCloser
}

func (r *remoteSource) Read(p []byte) (int, error) {
	if r.rc == nil {
		rc, err := r.from.GetRange(r.ctx, r.src.Key, r.src.Offset+r.pos, r.src.Length-r.pos)
		if err != nil {
			return 0, err
		}
		r.rc = rc
	}
	n, err := r.rc.Read(p)
	r.pos += int64(n)
	return n, err
}

func (r *remoteSource) Seek(offset int64, _ int) (int64, error) { // window only seeks from the start
	if offset != r.pos {
		r.closeBody()
		r.pos = offset
	}
	return offset, nil
}

func (r *remoteSource) closeBody() {
	if r.rc != nil {
		_ = r.rc.Close()
		r.rc = nil
	}
}

// sourceError distinguishes a missing source from a missing target: the server's answer is the
// same.
func sourceError(p objectstore.Source, err error) error {
	c := errorCode(err)
	switch {
	case c == "NoSuchKey" || (c == "" && httpStatus(err) == http.StatusNotFound):
		return fmt.Errorf("%w: %s: %w", objectstore.ErrNotFound, p.Key, err)
	case c == "InvalidRange" || c == "InvalidArgument" || httpStatus(err) == http.StatusRequestedRangeNotSatisfiable:
		return fmt.Errorf("%w: %s: %d bytes from %d: %w", objectstore.ErrInvalidRange, p.Key, p.Length, p.Offset, err)
	}
	return err
}
