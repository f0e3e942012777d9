package objectstore

import (
	"errors"
	"io"
)

// ErrorReader reads the body of an object and keeps the error that ended it. A decoder behind it
// reports a lost connection as damaged content; Err distinguishes the two. Not safe for concurrent
// use.
type ErrorReader struct {
	io.Reader
	// Err is the last error of Read but io.EOF, nil for none.
	Err error
}

// Read implements io.Reader.
func (r *ErrorReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.Err = err
	}
	return n, err
}
