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
	src, total, err := resolve(ctx, s, src)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("compose %s: %w", key, err)
	}
	w, err := s.creation(ctx, "compose", key)
	if err != nil {
		return objectstore.Info{}, err
	}
	if total < minPart {
		err = s.composeSmall(ctx, w, src)
	} else {
		var parts []partSource
		if parts, err = plan(src); err == nil {
			err = s.multipart(ctx, w, parts)
		}
	}
	if err := s.resolve(ctx, w, err); err != nil {
		return objectstore.Info{}, err
	}
	return s.Stat(ctx, key)
}

func (s *Store) composeSmall(ctx context.Context, w write, src []objectstore.Source) error {
	data, err := merge(ctx, s, src)
	if err != nil {
		return err
	}
	return s.put(ctx, w, &window{r: bytes.NewReader(data), size: int64(len(data))})
}
