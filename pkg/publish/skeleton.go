package publish

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/part"
)

// Compose creates the tarball from the parts.
func Compose(ctx context.Context, store objectstore.Store, plan Plan) (Result, error) {
	return Result{}, errors.ErrUnsupported
}

// Merge reads the sidecars and writes the merged files into dir.
func Merge(ctx context.Context, store objectstore.Reader, plan Plan, dir string) (*Merged, error) {
	return nil, errors.ErrUnsupported
}

// Create publishes a file under key, once: an object with the same content that is there already is adopted.
func Create(ctx context.Context, store objectstore.Store, key string, f part.File) (adopted bool, err error) {
	return false, errors.ErrUnsupported
}
