package tarball

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

func (l Limits) withDefaults() Limits {
	l.EntryBytes = cmp.Or(l.EntryBytes, 16<<20)
	l.TotalBytes = cmp.Or(l.TotalBytes, 1<<40)
	l.CacheBytes = cmp.Or(l.CacheBytes, 16<<20)
	return l
}

// ranges reads ranges of one object of a store.
type ranges struct {
	store objectstore.Reader
	key   string
}

func (r ranges) ReadRange(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	return r.store.GetRange(ctx, r.key, off, n)
}

// OpenManifest opens the manifest of a backup; objectstore.ErrNotFound if it has none.
func OpenManifest(ctx context.Context, store objectstore.Reader, backup string) (*manifest.Reader, error) {
	return openManifest(ctx, store, backup, layout.BackupManifest(backup))
}

func openManifest(ctx context.Context, store objectstore.Reader, backup, key string) (*manifest.Reader, error) {
	info, err := store.Stat(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("manifest of backup %s: %w", backup, err)
	}
	r, err := manifest.Open(ctx, ranges{store, key}, info.Size)
	if err != nil {
		return nil, fmt.Errorf("manifest of backup %s: %w", backup, err)
	}
	return r, nil
}

// FromManifest opens the tarball of a backup that has a manifest. A tarball of another size than
// the manifest says is ErrMismatch: it was written anew, and the manifest's offsets mean nothing.
func FromManifest(ctx context.Context, store objectstore.Reader, backup string, l Limits) (Source, error) {
	m, err := OpenManifest(ctx, store, backup)
	if err != nil {
		return nil, err
	}
	return WithManifest(ctx, store, backup, m, l)
}

// WithManifest is FromManifest with a manifest that is open.
func WithManifest(ctx context.Context, store objectstore.Reader, backup string, m *manifest.Reader, l Limits) (Source, error) {
	key := layout.BackupTarball(backup)
	info, err := store.Stat(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("tarball of backup %s: %w", backup, err)
	}
	if size := m.Trailer().TarballSize; size != 0 && size != info.Size {
		return nil, fmt.Errorf("%w: %s has %d bytes, the manifest says %d", ErrMismatch, key, info.Size, size)
	}
	return newSource(m, ranges{store, key}, l), nil
}

// Open chooses: FromManifest where there is a manifest that fits the tarball, else FromTarball. A
// damaged manifest is no reason not to restore what the tarball holds.
func Open(ctx context.Context, store objectstore.Reader, backup, dir string, l Limits) (Source, error) {
	src, err := FromManifest(ctx, store, backup, l)
	switch {
	case err == nil:
		return src, nil
	case errors.Is(err, ErrMismatch), errors.Is(err, manifest.ErrCorrupt):
		return FromTarball(ctx, store, backup, dir, l)
	}
	if ok, existsErr := objectstore.Exists(ctx, store, layout.BackupManifest(backup)); ok || existsErr != nil {
		return nil, errors.Join(err, existsErr)
	}
	return FromTarball(ctx, store, backup, dir, l)
}
