package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// ReadAll reads a small object whole. An object longer than limit is ErrSize: a damaged or foreign
// bucket must not decide how much memory is taken.
func ReadAll(ctx context.Context, r Reader, key string, limit int64) ([]byte, error) {
	rc, err := r.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rc.Close() }()
	data, err := io.ReadAll(io.LimitReader(rc, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: %s holds more than %d bytes", ErrSize, key, limit)
	}
	return data, nil
}

// PutBytes is Put of a slice.
func PutBytes(ctx context.Context, w Writer, key string, data []byte) error {
	return w.Put(ctx, key, bytes.NewReader(data), int64(len(data)))
}

// CreateBytes is Create of a slice.
func CreateBytes(ctx context.Context, w Writer, key string, data []byte) error {
	return w.Create(ctx, key, bytes.NewReader(data), int64(len(data)))
}

// CheckSize makes sure that r holds size bytes from its current position, which it returns; else it
// is ErrSize.
func CheckSize(r io.Seeker, size int64) (base int64, err error) {
	if base, err = r.Seek(0, io.SeekCurrent); err != nil {
		return 0, err
	}
	end, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	if size < 0 || end-base != size {
		return 0, fmt.Errorf("%w: %d bytes, announced as %d", ErrSize, end-base, size)
	}
	_, err = r.Seek(base, io.SeekStart)
	return base, err
}

// Exists reports whether there is an object named key, at the lowest price that the store has.
func Exists(ctx context.Context, r Reader, key string) (bool, error) {
	if e, ok := r.(Exister); ok {
		return e.Exists(ctx, key)
	}
	_, err := r.Stat(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// DeletePrefix deletes every object under prefix and returns how many. It continues after a failed
// delete, so that as much as possible is gone, and returns all errors joined; an error of the list
// ends it.
func DeletePrefix(ctx context.Context, s Store, prefix string) (int, error) {
	var deleted int
	var errs []error
	err := s.List(ctx, prefix, func(i Info) error {
		if err := s.Delete(ctx, i.Key); err != nil {
			errs = append(errs, err)
			return ctx.Err()
		}
		deleted++
		return nil
	})
	return deleted, errors.Join(append(errs, err)...)
}
