package volumedata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// maxEntry bounds one entry of a file, in bytes: an API server takes no object of twice that size.
	maxEntry = 1 << 20
	// maxFile bounds a file once it is unpacked: a million entries of the usual size.
	maxFile = 1 << 30
)

// each calls fn for each element of the compressed JSON array under key. null and a missing file are empty.
func each(ctx context.Context, store objectstore.Reader, key string, fn func(entry []byte) error) (err error) {
	body, err := store.Get(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	from := &broken{Reader: body}
	err = decode(from, fn)
	if err != nil && from.err != nil {
		return from.err // what follows a broken connection looks like damage
	}
	return err
}

func decode(r io.Reader, fn func(entry []byte) error) error {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	limit := &limited{r: zip, file: maxFile, entry: maxEntry}
	d := json.NewDecoder(limit)
	begin, err := d.Token()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	case begin == nil:
		return nil // null
	case begin != json.Delim('['):
		return fmt.Errorf("%w: is no list", ErrMalformed)
	}
	var entry json.RawMessage
	for d.More() {
		limit.entry = maxEntry
		if err := d.Decode(&entry); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		if err := fn(entry); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// broken remembers that the connection broke.
type broken struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (b *broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// limited fails when more is read than a file, or an entry, may have: the decoder keeps a whole entry in memory.
type limited struct {
	r           io.Reader
	file, entry int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	left := min(l.file, l.entry)
	if left <= 0 {
		return 0, fmt.Errorf("an entry of more than %d bytes, or a file of more than %d", maxEntry, maxFile)
	}
	n, err := l.r.Read(p[:min(int64(len(p)), left)])
	l.file, l.entry = l.file-int64(n), l.entry-int64(n)
	return n, err
}
