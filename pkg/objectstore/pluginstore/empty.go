package pluginstore

import (
	"bytes"
	"errors"
	"io"
	"strings"
)

// emptyText is the content of an empty object in the bucket. Content that is this text and nothing
// else is read as empty.
const emptyText = "This object of Holdfast is empty; the protocol of plugins cannot store it otherwise.\n"

// encodeEmpty returns what is stored for r, whose first byte it reads.
func encodeEmpty(r io.Reader) (io.Reader, error) {
	first := make([]byte, 1)
	switch _, err := io.ReadFull(r, first); {
	case errors.Is(err, io.EOF):
		return strings.NewReader(emptyText), nil
	case err != nil:
		return nil, err
	}
	return io.MultiReader(bytes.NewReader(first), r), nil
}

// decodeEmpty undoes encode. It reads the first few bytes; after an error rc is closed.
func decodeEmpty(rc io.ReadCloser) (io.ReadCloser, error) {
	start := make([]byte, len(emptyText)+1)
	n, err := io.ReadFull(rc, start)
	switch {
	case err == nil:
		return body{io.MultiReader(bytes.NewReader(start), rc), rc}, nil
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.Join(err, rc.Close())
	case string(start[:n]) == emptyText:
		n = 0
	}
	return body{bytes.NewReader(start[:n]), rc}, nil
}
