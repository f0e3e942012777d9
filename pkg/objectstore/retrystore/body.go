package retrystore

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// resumingBody is what a Get returned. When reading breaks off it continues behind the last byte: one lost
// connection must not cost a backup. Objects that are read here never change.
type resumingBody struct {
	ctx   context.Context //nolint:containedctx // the call's own, as of every body of a store
	store *Store
	key   string
	off   int64
	left  int64 // negative: to the end
	open  io.ReadCloser
}

// Read implements io.Reader.
func (b *resumingBody) Read(p []byte) (int, error) {
	n, err := b.open.Read(p)
	if isBrokenRead(n, err) && b.ctx.Err() == nil && classifyError(err) == transient {
		n, err = b.resumeRead(p)
	}
	b.off += int64(n)
	if b.left > 0 {
		b.left -= min(int64(n), b.left)
	}
	if n > 0 && !errors.Is(err, io.EOF) {
		err = nil // it comes again with the next call
	}
	return n, err
}

// isBrokenRead reports a read that brought nothing and is not the end.
func isBrokenRead(n int, err error) bool { return n == 0 && err != nil && !errors.Is(err, io.EOF) }

func (b *resumingBody) resumeRead(p []byte) (n int, end error) {
	err := b.store.retryCall(b.ctx, "go on reading", b.key, func(int) error {
		_ = b.open.Close() // it failed already
		b.open = http.NoBody
		again, err := b.store.Store.GetRange(b.ctx, b.key, b.off, b.left)
		if err != nil {
			return err
		}
		b.open = again
		if n, end = again.Read(p); isBrokenRead(n, end) {
			return end
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, end
}

// Close implements io.Closer.
func (b *resumingBody) Close() error { return b.open.Close() }
