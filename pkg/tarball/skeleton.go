package tarball

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// FromManifest opens the tarball of a backup that has a manifest.
func FromManifest(ctx context.Context, store objectstore.Reader, backup string, l Limits) (Source, error) {
	return nil, errors.ErrUnsupported
}

// FromTarball reads a tarball once, whoever wrote it, and re-segments it into files under dir.
func FromTarball(ctx context.Context, store objectstore.Reader, backup, dir string, l Limits) (Source, error) {
	return nil, errors.ErrUnsupported
}

// Open chooses: FromManifest where there is a manifest that fits the tarball, else FromTarball.
func Open(ctx context.Context, store objectstore.Reader, backup, dir string, l Limits) (Source, error) {
	return nil, errors.ErrUnsupported
}
