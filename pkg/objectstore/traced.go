package objectstore

import (
	"context"
	"errors"
	"io"

	"go.opentelemetry.io/otel/attribute"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

// Traced returns a view of s, the root of a location, whose calls are shown by spans, see
// [span.Begin]: those of one operation on one kind of object, such as "create part", are one span.
// That an object is absent, or there already, is no failure. It signs URLs if s does; closing it
// closes s.
func Traced(s Store, location string) Store {
	t := &traced{Store: s, location: location}
	if signer, ok := s.(Signer); ok {
		return &tracedSigner{traced: t, Signer: signer}
	}
	return t
}

type traced struct {
	Store
	location string
}

type tracedSigner struct {
	*traced
	Signer
}

// storeCalls is a kind of call of a store.
type storeCalls struct{ operation, object, location string }

// SpanName implements span.Kind.
func (c storeCalls) SpanName() string { return c.operation + " " + c.object }

// SpanAttributes implements span.Kind. OpenTelemetry has no conventions for object stores.
func (c storeCalls) SpanAttributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("holdfast.location", c.location),
		attribute.String("holdfast.store.operation", c.operation),
		attribute.String("holdfast.store.object", c.object),
	}
}

func (t *traced) beginCall(ctx context.Context, operation, key string) span.Call {
	return span.Begin(ctx, storeCalls{operation, layout.KindOf(key), t.location})
}

// endCall ends a call.
func endCall(call span.Call, err error) {
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrExists) {
		err = nil
	}
	call.End(err)
}

func (t *traced) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	call := t.beginCall(ctx, "get", key)
	body, err := t.Store.Get(ctx, key)
	return endOnClose(call, body, err)
}

func (t *traced) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	call := t.beginCall(ctx, "get", key)
	body, err := t.Store.GetRange(ctx, key, off, n)
	return endOnClose(call, body, err)
}

// endOnClose returns a body whose call ends when it is closed.
func endOnClose(call span.Call, body io.ReadCloser, err error) (io.ReadCloser, error) {
	if err != nil || call.Context() == nil {
		endCall(call, err)
		return body, err
	}
	return &tracedBody{ErrorReader: ErrorReader{Reader: body}, body: body, call: call}, nil
}

// tracedBody is not safe for concurrent use.
type tracedBody struct {
	ErrorReader
	body   io.Closer
	call   span.Call
	closed bool
}

// Close implements io.Closer.
func (b *tracedBody) Close() error {
	err := b.body.Close()
	if !b.closed {
		b.closed = true
		endCall(b.call, errors.Join(b.Err, err))
	}
	return err
}

func (t *traced) Stat(ctx context.Context, key string) (Info, error) {
	call := t.beginCall(ctx, "stat", key)
	info, err := t.Store.Stat(ctx, key)
	endCall(call, err)
	return info, err
}

func (t *traced) Exists(ctx context.Context, key string) (bool, error) {
	call := t.beginCall(ctx, "stat", key)
	found, err := Exists(ctx, t.Store, key)
	endCall(call, err)
	return found, err
}

// List shows a list with what fn takes of the time. An error of fn is no failure of the store.
func (t *traced) List(ctx context.Context, prefix string, fn func(Info) error) error {
	call := t.beginCall(ctx, "list", prefix)
	if call.Context() == nil {
		return t.Store.List(ctx, prefix, fn)
	}
	ended := false
	err := t.Store.List(ctx, prefix, func(i Info) error {
		err := fn(i)
		ended = ended || err != nil
		return err
	})
	if ended {
		endCall(call, nil)
	} else {
		endCall(call, err)
	}
	return err
}

func (t *traced) ListPrefixes(ctx context.Context, prefix string) ([]string, error) {
	call := t.beginCall(ctx, "list", prefix)
	found, err := t.Store.ListPrefixes(ctx, prefix)
	endCall(call, err)
	return found, err
}

func (t *traced) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	call := t.beginCall(ctx, "put", key)
	err := t.Store.Put(ctx, key, r, size)
	endCall(call, err)
	return err
}

func (t *traced) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	call := t.beginCall(ctx, "create", key)
	err := t.Store.Create(ctx, key, r, size)
	endCall(call, err)
	return err
}

func (t *traced) Delete(ctx context.Context, key string) error {
	call := t.beginCall(ctx, "delete", key)
	err := t.Store.Delete(ctx, key)
	endCall(call, err)
	return err
}

func (t *traced) Compose(ctx context.Context, key string, src []Source) (Info, error) {
	call := t.beginCall(ctx, "compose", key)
	info, err := t.Store.Compose(ctx, key, src)
	endCall(call, err)
	return info, err
}

// SweepUploads implements UploadSweeper, for a store that has nothing to sweep too.
func (t *traced) SweepUploads(ctx context.Context, prefix string, abandoned func(Upload) (bool, error)) (int, error) {
	call := t.beginCall(ctx, "sweep uploads of", prefix)
	n, err := SweepUploads(ctx, t.Store, prefix, abandoned)
	endCall(call, err)
	return n, err
}

func (t *traced) unwrapStore() Store { return t.Store }
