package objectstore

import (
	"context"
	"io"
	"time"

	"k8s.io/utils/clock"
)

// Observer gets the calls of a store that have ended: their name, how long they took until the
// answer, without the content of what Get and GetRange open, and their error. It is called
// concurrently.
type Observer func(call string, took time.Duration, err error)

// Observed returns a view of s whose calls are shown to an Observer. It signs URLs if s does;
// closing it closes s.
func Observed(s Store, c clock.PassiveClock, see Observer) Store {
	o := &observed{Store: s, clock: c, see: see}
	if signer, ok := s.(Signer); ok {
		return &observedSigner{observed: o, signer: signer}
	}
	return o
}

type observed struct {
	Store
	clock clock.PassiveClock
	see   Observer
}

type observedSigner struct {
	*observed
	signer Signer
}

// observeCall makes a call and shows it.
func (o *observed) observeCall(name string, do func() error) error {
	begin := o.clock.Now()
	err := do()
	o.see(name, o.clock.Since(begin), err)
	return err
}

func (o *observed) Get(ctx context.Context, key string) (body io.ReadCloser, err error) {
	err = o.observeCall("get", func() error { body, err = o.Store.Get(ctx, key); return err })
	return body, err
}

func (o *observed) GetRange(ctx context.Context, key string, off, n int64) (body io.ReadCloser, err error) {
	err = o.observeCall("getRange", func() error { body, err = o.Store.GetRange(ctx, key, off, n); return err })
	return body, err
}

func (o *observed) Stat(ctx context.Context, key string) (info Info, err error) {
	err = o.observeCall("stat", func() error { info, err = o.Store.Stat(ctx, key); return err })
	return info, err
}

func (o *observed) Exists(ctx context.Context, key string) (found bool, err error) {
	err = o.observeCall("exists", func() error { found, err = Exists(ctx, o.Store, key); return err })
	return found, err
}

func (o *observed) List(ctx context.Context, prefix string, fn func(Info) error) error {
	return o.observeCall("list", func() error { return o.Store.List(ctx, prefix, fn) })
}

func (o *observed) ListPrefixes(ctx context.Context, prefix string) (found []string, err error) {
	err = o.observeCall("listPrefixes", func() error { found, err = o.Store.ListPrefixes(ctx, prefix); return err })
	return found, err
}

func (o *observed) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return o.observeCall("put", func() error { return o.Store.Put(ctx, key, r, size) })
}

func (o *observed) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return o.observeCall("create", func() error { return o.Store.Create(ctx, key, r, size) })
}

func (o *observed) Delete(ctx context.Context, key string) error {
	return o.observeCall("delete", func() error { return o.Store.Delete(ctx, key) })
}

func (o *observed) Compose(ctx context.Context, key string, src []Source) (info Info, err error) {
	err = o.observeCall("compose", func() error { info, err = o.Store.Compose(ctx, key, src); return err })
	return info, err
}

func (o *observedSigner) SignGet(ctx context.Context, key string, ttl time.Duration) (string, error) {
	return o.signer.SignGet(ctx, key, ttl)
}

func (o *observed) unwrapStore() Store { return o.Store }
