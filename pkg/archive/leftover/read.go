package leftover

import (
	"bytes"
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
