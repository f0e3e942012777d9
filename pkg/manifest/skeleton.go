package manifest

import (
	"context"
	"errors"
	"io"
	"iter"
)

// RangeReader gives byte ranges of the manifest.
type RangeReader interface {
	// ReadRange opens n bytes from off.
	ReadRange(ctx context.Context, off, n int64) (io.ReadCloser, error)
}

// Reader reads a manifest by ranges. It is safe for concurrent use.
type Reader struct{}

// KindInfo is one kind of a manifest.
type KindInfo struct {
	// Kind as KindName returns it, and the resource as in tarball paths.
	Kind, Resource string
	Items          int64
}

// Filter selects items.
type Filter struct {
	// Kinds as KindName returns them; empty means all.
	Kinds []string
	// Namespaces; empty means all, "" in it means cluster-scoped items.
	Namespaces []string
	// After skips items up to and including this key.
	After *Key
}

// Open reads the directory of the manifest.
func Open(ctx context.Context, src RangeReader, size int64) (*Reader, error) {
	return nil, errors.ErrUnsupported
}

// Header returns what was known before the items.
func (r *Reader) Header() Header { return Header{} }

// Trailer returns what was known after the items.
func (r *Reader) Trailer() Trailer { return Trailer{} }

// Kinds returns the kinds in order.
func (r *Reader) Kinds() []KindInfo { return nil }

// Lookup returns one item.
func (r *Reader) Lookup(ctx context.Context, key Key) (Item, error) { return Item{}, errors.ErrUnsupported }

// LookupUID returns the item with that UID.
func (r *Reader) LookupUID(ctx context.Context, uid string) (Item, error) {
	return Item{}, errors.ErrUnsupported
}

// Items yields the items that pass f in key order.
func (r *Reader) Items(ctx context.Context, f Filter) iter.Seq2[Item, error] { return nil }
