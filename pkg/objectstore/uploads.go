package objectstore

import (
	"context"
	"strings"
	"time"
)

// Upload is a write that was begun and is not finished: its process is still running, or died
// before its end. No list of objects shows it, and it takes up space.
type Upload struct {
	// Key is the object it would become.
	Key string
	// Begun is when it was begun or, where the store reports it, last written to; by the store's
	// clock.
	Begun time.Time
}

// UploadSweeper is implemented by stores in which a writer that dies leaves something that Delete
// cannot reach: incomplete multipart uploads, temporary files.
type UploadSweeper interface {
	// SweepUploads removes the unfinished writes to keys under prefix for which abandoned returns
	// true, and returns how many. A writer that still runs fails and leaves no object. It is a stream
	// of bounded memory; an error of abandoned ends it and is returned. Writes whose key the store has
	// not kept are left alone.
	SweepUploads(ctx context.Context, prefix string, abandoned func(Upload) (bool, error)) (int, error)
}

// SweepUploads is UploadSweeper's for any store and view of one: keys are relative to a view's
// prefix, a read-only view refuses with ErrReadOnly where it may not be written, and a store that leaves nothing behind has
// nothing to do.
func SweepUploads(ctx context.Context, s Store, prefix string, abandoned func(Upload) (bool, error)) (int, error) {
	if err := CheckPrefix(prefix); err != nil {
		return 0, err
	}
	switch v := s.(type) {
	case UploadSweeper:
		return v.SweepUploads(ctx, prefix, abandoned)
	case *prefixed:
		return v.sweepUploads(ctx, prefix, abandoned)
	case *prefixedSigner:
		return v.sweepUploads(ctx, prefix, abandoned)
	case *readOnly:
		return v.sweepUploads(ctx, prefix, abandoned)
	case *readOnlySigner:
		return v.sweepUploads(ctx, prefix, abandoned)
	}
	return 0, nil
}

func (p *prefixed) sweepUploads(ctx context.Context, prefix string, abandoned func(Upload) (bool, error)) (int, error) {
	return SweepUploads(ctx, p.Store, p.prefix+prefix, func(u Upload) (bool, error) {
		u.Key = strings.TrimPrefix(u.Key, p.prefix)
		return abandoned(u)
	})
}

func (r readOnly) sweepUploads(ctx context.Context, prefix string, abandoned func(Upload) (bool, error)) (int, error) {
	if err := r.checkWrite("sweep uploads", prefix); err != nil {
		return 0, err
	}
	return SweepUploads(ctx, r.Store, prefix, abandoned)
}
