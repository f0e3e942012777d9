package s3store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Compose implements objectstore.Writer with UploadPartCopy. Pieces under 5 MiB go through this
// process, at most 20 MiB at a time; a server that does not know UploadPartCopy gets everything
// that way.
func (s *Store) Compose(ctx context.Context, key string, src []objectstore.Source) (objectstore.Info, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return objectstore.Info{}, err
	}
	src, total, err := resolveSources(ctx, s, src)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("compose %s: %w", key, err)
	}
	w, err := s.beginCreate(ctx, "compose", key)
	if err != nil {
		return objectstore.Info{}, err
	}
	if total < minPart {
		err = s.composeSmall(ctx, w, src)
	} else {
		var parts []partSource
		if parts, err = planParts(src); err == nil {
			err = s.uploadMultipart(ctx, w, parts)
		}
	}
	if err := s.resolveConflict(ctx, w, err); err != nil {
		return objectstore.Info{}, err
	}
	return s.Stat(ctx, key)
}

func (s *Store) composeSmall(ctx context.Context, w objectWrite, src []objectstore.Source) error {
	data, err := mergePieces(ctx, s, src)
	if err != nil {
		return err
	}
	return s.putObject(ctx, w, &uploadWindow{r: bytes.NewReader(data), size: int64(len(data))})
}
