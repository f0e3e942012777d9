package objectstore

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// WithPrefix returns a view of s that holds only what lies under prefix, with keys relative to it.
// prefix is empty or ends in "/". The view signs URLs if s does; closing it closes s.
func WithPrefix(s Store, prefix string) (Store, error) {
	if err := CheckDir(prefix); err != nil {
		return nil, err
	}
	if prefix == "" {
		return s, nil
	}
	p := &prefixed{Store: s, prefix: prefix}
	if signer, ok := s.(Signer); ok {
		return &prefixedSigner{prefixed: p, signer: signer}, nil
	}
	return p, nil
}

type prefixed struct {
	Store
	prefix string
}

type prefixedSigner struct {
	*prefixed
	signer Signer
}

// prefixedKey checks before it joins: "../x" under a prefix must not leave it.
func (p *prefixed) prefixedKey(key string) (string, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	return p.prefix + key, nil
}

func (p *prefixed) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return p.GetRange(ctx, key, 0, -1)
}

func (p *prefixed) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	full, err := p.prefixedKey(key)
	if err != nil {
		return nil, err
	}
	if off == 0 && n < 0 {
		return p.Store.Get(ctx, full)
	}
	return p.Store.GetRange(ctx, full, off, n)
}

func (p *prefixed) Stat(ctx context.Context, key string) (Info, error) {
	full, err := p.prefixedKey(key)
	if err != nil {
		return Info{}, err
	}
	return p.stripPrefix(p.Store.Stat(ctx, full))
}

func (p *prefixed) Exists(ctx context.Context, key string) (bool, error) {
	full, err := p.prefixedKey(key)
	if err != nil {
		return false, err
	}
	return Exists(ctx, p.Store, full)
}

func (p *prefixed) List(ctx context.Context, prefix string, fn func(Info) error) error {
	if err := CheckPrefix(prefix); err != nil {
		return err
	}
	return p.Store.List(ctx, p.prefix+prefix, func(i Info) error {
		i.Key = strings.TrimPrefix(i.Key, p.prefix)
		return fn(i)
	})
}

func (p *prefixed) ListPrefixes(ctx context.Context, prefix string) ([]string, error) {
	if err := CheckDir(prefix); err != nil {
		return nil, err
	}
	return p.Store.ListPrefixes(ctx, p.prefix+prefix)
}

func (p *prefixed) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	full, err := p.prefixedKey(key)
	if err != nil {
		return err
	}
	return p.Store.Put(ctx, full, r, size)
}

func (p *prefixed) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	full, err := p.prefixedKey(key)
	if err != nil {
		return err
	}
	return p.Store.Create(ctx, full, r, size)
}

func (p *prefixed) Delete(ctx context.Context, key string) error {
	full, err := p.prefixedKey(key)
	if err != nil {
		return err
	}
	return p.Store.Delete(ctx, full)
}

func (p *prefixed) Compose(ctx context.Context, key string, src []Source) (Info, error) {
	full, err := p.prefixedKey(key)
	if err != nil {
		return Info{}, err
	}
	moved := make([]Source, len(src))
	for i, s := range src {
		if s.Data == nil {
			if s.Key, err = p.prefixedKey(s.Key); err != nil {
				return Info{}, fmt.Errorf("source %d: %w", i, err)
			}
		}
		moved[i] = s
	}
	return p.stripPrefix(p.Store.Compose(ctx, full, moved))
}

func (p *prefixed) stripPrefix(i Info, err error) (Info, error) {
	i.Key = strings.TrimPrefix(i.Key, p.prefix)
	return i, err
}

func (p *prefixedSigner) SignGet(ctx context.Context, key string, ttl time.Duration) (string, error) {
	full, err := p.prefixedKey(key)
	if err != nil {
		return "", err
	}
	return p.signer.SignGet(ctx, full, ttl)
}

// As returns s as a T if it is one, else the outermost store that its views wrap and that is one,
// and whether there is one. The views are those of this package, such as WithPrefix and ReadOnly. A
// call of what a view wraps is without it: keys are not put below the prefix, writes are made
// whatever the access mode is, and neither an Observer nor a trace has them.
func As[T any](s Store) (T, bool) {
	for s != nil {
		if t, ok := s.(T); ok {
			return t, true
		}
		view, ok := s.(interface{ unwrapStore() Store })
		if !ok {
			break
		}
		s = view.unwrapStore()
	}
	var none T
	return none, false
}

func (p *prefixed) unwrapStore() Store { return p.Store }
func (r readOnly) unwrapStore() Store  { return r.Store }
