// Package tarball reads the objects of a backup out of its tarball: by range if a manifest has
// their places, else after one pass that re-segments the tarball in the work dir. Nothing is ever
// unpacked into files named by the archive.
package tarball

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
)

var (
	// ErrCorrupt means that the tarball is damaged or truncated; the message names the entry.
	ErrCorrupt = errors.New("corrupt tarball")
	// ErrTooLarge means that the tarball, or one entry, unpacks to more than Limits allow.
	ErrTooLarge = errors.New("tarball exceeds limit")
	// ErrPath means that an entry's name leaves the archive or is not Velero's layout.
	ErrPath = errors.New("invalid path")
	// ErrMismatch means that an object differs from the manifest.
	ErrMismatch = errors.New("object differs from manifest")
)

// Limits bounds what a tarball may cost to read. Zero fields mean the defaults.
type Limits struct {
	// EntryBytes is the largest body accepted, 16 MiB by default: above what any API server stores.
	EntryBytes int64
	// TotalBytes is the largest unpacked tarball accepted, 1 TiB by default.
	TotalBytes int64
	// CacheBytes bounds the unpacked gzip members kept for neighbouring reads, 16 MiB by default.
	CacheBytes int64
	// References finds what the objects of a tarball without a manifest name; nil has the built-in rules alone.
	References *reference.Set
}

// Problem is an entry that was passed over.
type Problem struct {
	// Path as the archive has it.
	Path string
	// Err wraps ErrPath, ErrTooLarge or ErrCorrupt.
	Err error
}

// Source gives the objects of one backup. It is safe for concurrent use.
type Source interface {
	// Header describes the backup as its manifest does; for a foreign tarball Foreign is set.
	Header() manifest.Header
	// Manifest is what the items are found by.
	Manifest() *manifest.Reader
	// Items yields every object in manifest order, each path once, and ends after the first error.
	Items(ctx context.Context) iter.Seq2[manifest.Item, error]
	// Read returns the body of an item Items yielded, verified against its hash. It must not be
	// modified, and may share memory with its neighbours.
	Read(ctx context.Context, item manifest.Item) ([]byte, error)
	// Problems returns the entries that were passed over, at most a hundred, and how many there
	// are.
	Problems() ([]Problem, int)
	// Close releases what the source holds, files in the work dir included.
	Close() error
}
