// Package objectstore is what Holdfast asks of a bucket: objects that are written whole or not at
// all, an atomic create-if-absent, ordered streaming lists and server-side composition.
//
// Every implementation (filestore, s3store, memstore) passes the conformance suite in storetest;
// the comments of the interfaces here are the specification it checks. Keys are valid as CheckKey
// says; everything else is refused with ErrInvalidKey before the store is asked. Stores are safe
// for concurrent use.
package objectstore

import (
	"context"
	"io"
	"time"
)

// Info describes a stored object. A store behind a plugin lists keys alone and has no times: such
// fields are zero.
type Info struct {
	// Key is the object's full key in the store it was asked from.
	Key string
	// Size is the length of the content in bytes.
	Size int64
	// ETag identifies the content opaquely: it changes when the object is overwritten. It is not a
	// digest.
	ETag string
	// ModTime is when the object became visible, by the store's clock.
	ModTime time.Time
}

// Source is one piece of a composed object: literal bytes when Data is not nil, else a range of
// another object of the same store.
type Source struct {
	// Key names the object the range is taken from; ignored when Data is set.
	Key string
	// Offset is the first byte of the range.
	Offset int64
	// Length is the number of bytes; negative means to the end of the object.
	Length int64
	// Data is the piece itself. It is not modified and not kept after the call.
	Data []byte
}

// Reader reads objects. An absent object is ErrNotFound, an absent bucket ErrNoBucket.
type Reader interface {
	// Get opens the whole object. The caller closes the reader; ctx ends the transfer.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// GetRange opens n bytes from off; n < 0 means to the end. A range reaching over the end is cut
	// there, and one that starts at or after the end is empty; a negative off is ErrInvalidRange.
	GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)
	// Stat describes the object without reading it.
	Stat(ctx context.Context, key string) (Info, error)
	// List calls fn for every object whose key starts with prefix, in byte order of keys, as a
	// stream of bounded memory. An error of fn ends the list and is returned; fs.SkipAll ends it
	// without an error. Objects created or deleted meanwhile may or may not be seen.
	List(ctx context.Context, prefix string, fn func(Info) error) error
	// ListPrefixes returns what follows prefix up to and including the next "/" in each key that
	// has one, each once and in byte order ("directories" right under prefix, as "name/"). prefix
	// is empty or ends in "/".
	ListPrefixes(ctx context.Context, prefix string) ([]string, error)
}

// Writer writes whole objects: until a call succeeds no reader gets anything of it, and a failed
// call leaves nothing visible. size is the exact length of r from its current position; any other
// length is ErrSize. Readers are rewound for retries, so r must stay unused until the call returns.
type Writer interface {
	// Put writes the object, replacing an existing one.
	Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error
	// Create writes the object only if there is none: of any number of concurrent calls for one key
	// exactly one succeeds, the others return ErrExists and change nothing.
	Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error
	// Delete removes the object; an absent one is success.
	Delete(ctx context.Context, key string) error
	// Compose creates the object from src in order, only if there is none (ErrExists), copying
	// inside the store where it can. A missing source is ErrNotFound naming its key.
	Compose(ctx context.Context, key string, src []Source) (Info, error)
}

// Store is a bucket, or a prefix of one.
type Store interface {
	Reader
	Writer
	// Close releases connections and files. Calls after Close have undefined results.
	Close() error
}

// Exister is implemented by stores that can check the existence of an object for less than Stat
// costs. Callers use [Exists].
type Exister interface {
	// Exists reports whether there is an object named key.
	Exists(ctx context.Context, key string) (bool, error)
}

// Signer is implemented by stores that hand out URLs which need no credentials. Stores without it
// are served through Holdfast's artifact endpoint.
type Signer interface {
	// SignGet returns a URL that GETs the object for ttl. Whether the object exists is not checked.
	// ErrUnsigned means that the store has no URLs after all.
	SignGet(ctx context.Context, key string, ttl time.Duration) (string, error)
}
