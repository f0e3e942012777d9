package objectstore

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// ReadOnly returns a view of s whose writes fail with ErrReadOnly before s is asked, but for those of keys with one
// of the given prefixes. It signs URLs if s does; closing it closes s.
func ReadOnly(s Store, writable ...string) Store {
	view := readOnly{Store: s, writable: writable}
	if signer, ok := s.(Signer); ok {
		return &readOnlySigner{readOnly: view, signer: signer}
	}
	return &view
}

type readOnly struct {
	Store
	writable []string // prefixes
}

type readOnlySigner struct {
	readOnly
	signer Signer
}

func (r readOnly) Exists(ctx context.Context, key string) (bool, error) {
	return Exists(ctx, r.Store, key)
}

// checkWrite returns an error for a key that may not be written.
func (r readOnly) checkWrite(op, key string) error {
	for _, prefix := range r.writable {
		if strings.HasPrefix(key, prefix) {
			return nil
		}
	}
	return readOnlyError(op, key)
}

func (r readOnly) Put(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	if err := r.checkWrite("put", key); err != nil {
		return err
	}
	return r.Store.Put(ctx, key, body, size)
}

func (r readOnly) Create(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	if err := r.checkWrite("create", key); err != nil {
		return err
	}
	return r.Store.Create(ctx, key, body, size)
}

func (r readOnly) Delete(ctx context.Context, key string) error {
	if err := r.checkWrite("delete", key); err != nil {
		return err
	}
	return r.Store.Delete(ctx, key)
}

func (r readOnly) Compose(ctx context.Context, key string, sources []Source) (Info, error) {
	if err := r.checkWrite("compose", key); err != nil {
		return Info{}, err
	}
	return r.Store.Compose(ctx, key, sources)
}

func (r *readOnlySigner) SignGet(ctx context.Context, key string, ttl time.Duration) (string, error) {
	return r.signer.SignGet(ctx, key, ttl)
}

func readOnlyError(op, key string) error { return fmt.Errorf("%s %s: %w", op, key, ErrReadOnly) }
