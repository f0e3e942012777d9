package tarball

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// source reads items by range, whatever made the manifest.
type source struct {
	manifest *manifest.Reader
	data     manifest.RangeReader
	limits   Limits
	cache    *segmentCache
	gate     gate
	problems problems
	release  func() error
}

func newSource(m *manifest.Reader, data manifest.RangeReader, l Limits) *source {
	l = l.withDefaults()
	return &source{manifest: m, data: data, limits: l, cache: newCache(l.CacheBytes), gate: make(gate, 1), release: func() error { return nil }}
}

// Header describes the backup.
func (s *source) Header() manifest.Header { return s.manifest.Header() }

// Manifest returns what the items are found by.
func (s *source) Manifest() *manifest.Reader { return s.manifest }

// Items yields every object in manifest order.
func (s *source) Items(ctx context.Context) iter.Seq2[manifest.Item, error] {
	return s.manifest.Items(ctx, manifest.Filter{})
}

// Problems returns the entries that were passed over.
func (s *source) Problems() ([]Problem, int) { return s.problems.list, s.problems.count }

// Close releases the source.
func (s *source) Close() error {
	s.cache.dropSegments()
	return s.release()
}

// Read returns the body of item. The gzip member around it is kept a while, since its neighbours
// are usually next.
func (s *source) Read(ctx context.Context, item manifest.Item) ([]byte, error) {
	if item.Size > s.limits.EntryBytes {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrTooLarge, item.Path, item.Size, s.limits.EntryBytes)
	}
	if item.Length == 0 && s.manifest.Header().Foreign { // the item is of a rebuilt manifest
		found, err := s.manifest.Lookup(ctx, item.Key())
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", item.Path, err)
		}
		item = found
	}
	at := segmentPlace{offset: item.Offset, length: item.Length}
	m, err := s.cache.getSegment(ctx, at, func(ctx context.Context) (*member, error) {
		return readMember(ctx, s.data, at, s.limits, s.gate)
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", item.Path, err)
	}
	body, ok := m.bodies[item.Path]
	if !ok {
		return nil, fmt.Errorf("%w: no entry %s in the gzip member at %d", ErrMismatch, item.Path, item.Offset)
	}
	sum := sha256.Sum256(body)
	if int64(len(body)) != item.Size || hex.EncodeToString(sum[:]) != item.SHA256 {
		return nil, fmt.Errorf("%w: %s has %d bytes with SHA-256 %x, the manifest says %d with %s", ErrMismatch, item.Path, len(body), sum, item.Size, item.SHA256)
	}
	return body, nil
}
