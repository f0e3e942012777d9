package volumedata

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// limits bound a file once it is unpacked, one entry of it, in bytes (an API server takes no object
// of twice that size), and what an entry takes in memory.
var limits = jsonlimit.Limits{Text: 1 << 30, Element: 1 << 20, Decoded: 32 << 20}

// volumeList reads a list of entries; false from convert is an entry that is about no volume.
type volumeList func(r io.Reader, fn func(Data) error) error

// decodeEntries reads entries of one type.
func decodeEntries[T any](convert func(*T) (Data, bool)) volumeList {
	return func(r io.Reader, fn func(Data) error) error {
		return jsonlimit.Each(r, limits, func(entry *T) error {
			if data, is := convert(entry); is {
				return fn(data)
			}
			return nil
		})
	}
}

// eachVolume calls fn for each volume in the compressed list under key. A missing file is empty.
func eachVolume(ctx context.Context, store objectstore.Reader, key string, of volumeList, fn func(Data) error) error {
	body, err := store.Get(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	from := &objectstore.ErrorReader{Reader: body}
	zip, err := gzip.NewReader(from)
	var own error
	if err == nil {
		err = of(zip, func(d Data) error {
			own = fn(d)
			return own
		})
	}
	switch {
	case err == nil:
		return nil
	case from.Err != nil:
		return from.Err // what follows a broken connection looks like damage
	case own != nil:
		return own
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}
