package objectstore

import (
	"context"
	"fmt"
	"io"
	"time"
)

// ReadOnly returns a view of s whose writes fail with ErrReadOnly before s is asked. It signs URLs
// if s does; closing it closes s.
func ReadOnly(s Store) Store {
	if signer, ok := s.(Signer); ok {
		return &readOnlySigner{readOnly: readOnly{s}, signer: signer}
	}
	return &readOnly{s}
}

type readOnly struct{ Store }

type readOnlySigner struct {
	readOnly
	signer Signer
}

func (r readOnly) Exists(ctx context.Context, key string) (bool, error) {
	return Exists(ctx, r.Store, key)
}

func (readOnly) Put(_ context.Context, key string, _ io.ReadSeeker, _ int64) error {
	return readOnlyError("put", key)
}

func (readOnly) Create(_ context.Context, key string, _ io.ReadSeeker, _ int64) error {
	return readOnlyError("create", key)
}

func (readOnly) Delete(_ context.Context, key string) error { return readOnlyError("delete", key) }

func (readOnly) Compose(_ context.Context, key string, _ []Source) (Info, error) {
	return Info{}, readOnlyError("compose", key)
}

func (r *readOnlySigner) SignGet(ctx context.Context, key string, ttl time.Duration) (string, error) {
	return r.signer.SignGet(ctx, key, ttl)
}

func readOnlyError(op, key string) error { return fmt.Errorf("%s %s: %w", op, key, ErrReadOnly) }
