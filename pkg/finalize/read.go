package finalize

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
)

// inflate unpacks a small text.
func inflate(packed []byte) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(zip, maxResults+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxResults {
		return nil, fmt.Errorf("more than %d bytes", maxResults)
	}
	return text, nil
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
