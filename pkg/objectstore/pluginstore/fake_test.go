package pluginstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/pluginstore"
)

// provider is a plugin in this process whose calls can be replaced; the default is a bucket in
// memory.
type provider struct {
	mu      sync.Mutex
	objects map[string]string
	put     func(key string, body io.Reader) error
	get     func(key string) (io.ReadCloser, error)
	lists   []string
	calls   atomic.Int64
}

func (*provider) Name() string { return "test.io/fake" }

func (p *provider) Put(_ context.Context, _, key string, body io.Reader) error {
	p.calls.Add(1)
	if p.put != nil {
		return p.put(key, body)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.objects[key] = string(data)
	return nil
}

func (p *provider) Exists(_ context.Context, _, key string) (bool, error) {
	p.calls.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.objects[key]
	return ok, nil
}

func (p *provider) Get(_ context.Context, _, key string) (io.ReadCloser, error) {
	p.calls.Add(1)
	if p.get != nil {
		return p.get(key)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	data, ok := p.objects[key]
	if !ok {
		return nil, &pluginhost.Error{Plugin: p.Name(), Method: "GetObject", Err: &pluginhost.RemoteError{Message: "404"}}
	}
	return io.NopCloser(strings.NewReader(data)), nil
}

func (p *provider) ListCommonPrefixes(context.Context, string, string, string) ([]string, error) {
	return p.lists, nil
}

func (p *provider) ListObjects(context.Context, string, string) ([]string, error) {
	return p.lists, nil
}

func (p *provider) Delete(_ context.Context, _, key string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.objects, key)
	return nil
}

func (*provider) SignedURL(context.Context, string, string, time.Duration) (string, error) {
	return "", nil
}

var _ action.ObjectStore = (*provider)(nil)

func newStoreOver(t *testing.T, p *provider, locks *pluginstore.Locks) *pluginstore.Store {
	t.Helper()
	if p.objects == nil {
		p.objects = map[string]string{}
	}
	s := pluginstore.New(pluginstore.Config{Plugin: p, Bucket: "b", Dir: t.TempDir(), Locks: locks})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// TestOneOfManyStoresOfAProcessCreates gives each writer a store of its own, as jobs have.
func TestOneOfManyStoresOfAProcessCreates(t *testing.T) {
	p, locks := &provider{}, &pluginstore.Locks{}
	var group sync.WaitGroup
	var won atomic.Int64
	for i := range 16 {
		s := newStoreOver(t, p, locks)
		group.Go(func() {
			err := objectstore.CreateBytes(t.Context(), s, "k", []byte{byte(i)})
			if err == nil {
				won.Add(1)
				return
			}
			if !errors.Is(err, objectstore.ErrExists) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 1, won.Load())
}

// TestAnotherWritersObjectIsNoSuccess has another process write between our write and our look at
// it.
func TestAnotherWritersObjectIsNoSuccess(t *testing.T) {
	p := &provider{}
	s := newStoreOver(t, p, &pluginstore.Locks{})
	p.put = func(key string, body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.objects[key] = "theirs"
		return err
	}
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, "k", []byte("mine")), objectstore.ErrExists)
	_, err := s.Compose(t.Context(), "k2", []objectstore.Source{{Data: []byte("mine")}})
	require.ErrorIs(t, err, objectstore.ErrExists)

	p.put = func(string, io.Reader) error { return nil } // takes nothing, stores nothing
	err = objectstore.CreateBytes(t.Context(), s, "k3", []byte("mine"))
	require.ErrorContains(t, err, "is not there")
	require.NotErrorIs(t, err, objectstore.ErrNotFound, "which nobody would try again")
	require.NotErrorIs(t, err, objectstore.ErrExists)
}

func TestAWriterThatWaitsCanGo(t *testing.T) {
	p, locks := &provider{}, &pluginstore.Locks{}
	s := newStoreOver(t, p, locks)
	entered, leave := make(chan struct{}), make(chan struct{})
	p.put = func(string, io.Reader) error { close(entered); <-leave; return errors.New("no") }
	done := make(chan error)
	go func() { done <- objectstore.CreateBytes(t.Context(), s, "k", []byte("x")) }()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, objectstore.CreateBytes(ctx, newStoreOver(t, p, locks), "k", []byte("x")), context.Canceled)
	close(leave)
	require.ErrorContains(t, <-done, "no")
	p.put = nil
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "k", []byte("x")), "the lock is free")
}

// endless is content made as it is read, which says how far it was read.
type endless struct {
	left int64
	read *atomic.Int64
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), e.left))
	e.left -= int64(n)
	e.read.Add(int64(n))
	return n, nil
}

// TestComposeHoldsNothing has sources far larger than what may be in memory: never is more read
// than one chunk ahead of what the plugin took.
func TestComposeHoldsNothing(t *testing.T) {
	const each, sources, chunk = 8 << 20, 8, 256 << 10
	p := &provider{}
	s := newStoreOver(t, p, &pluginstore.Locks{})
	var read atomic.Int64
	p.get = func(string) (io.ReadCloser, error) { return io.NopCloser(&endless{each, &read}), nil }
	var taken, ahead int64
	p.put = func(_ string, body io.Reader) error {
		buffer := make([]byte, chunk)
		for {
			n, err := io.ReadFull(body, buffer)
			taken += int64(n)
			ahead = max(ahead, read.Load()-taken)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return errors.New("enough") // what is read back is not the point
			}
			if err != nil {
				return err
			}
		}
	}
	src := make([]objectstore.Source, sources)
	for i := range src {
		src[i] = objectstore.Source{Key: "part", Length: each}
	}
	_, err := s.Compose(t.Context(), "whole", src)
	require.ErrorContains(t, err, "enough")
	require.EqualValues(t, each*sources, taken)
	require.LessOrEqual(t, ahead, int64(chunk))
}

func TestStrangeListsAreErrors(t *testing.T) {
	none := func(objectstore.Info) error { return nil }
	for _, answer := range []string{"elsewhere/x", "", "/", "p"} {
		s := newStoreOver(t, &provider{lists: []string{"p/a/", answer}}, nil)
		err := s.List(t.Context(), "p/", none)
		require.ErrorIs(t, err, pluginhost.ErrMalformed, "%q", answer)
		require.ErrorContains(t, err, "test.io/fake: ListObjects")
		_, err = s.ListPrefixes(t.Context(), "p/")
		require.ErrorIs(t, err, pluginhost.ErrMalformed, "%q", answer)
	}
	s := newStoreOver(t, &provider{lists: []string{"p/b", "p/a", "p/folder/", "p/a"}}, nil)
	var keys []string
	require.NoError(t, s.List(t.Context(), "p/", func(i objectstore.Info) error { keys = append(keys, i.Key); return nil }))
	require.Equal(t, []string{"p/a", "p/b"}, keys)
	s = newStoreOver(t, &provider{lists: []string{"p/b", "p/a/", "p/b/"}}, nil)
	dirs, err := s.ListPrefixes(t.Context(), "p/")
	require.NoError(t, err)
	require.Equal(t, []string{"a/", "b/"}, dirs, "with the delimiter or without")
	_, err = newStoreOver(t, &provider{lists: []string{"p/a/b/"}}, nil).ListPrefixes(t.Context(), "p/")
	require.ErrorIs(t, err, pluginhost.ErrMalformed)
}

// TestExistsIsOneCall: Stat would read the object.
func TestExistsIsOneCall(t *testing.T) {
	p := &provider{objects: map[string]string{"k": strings.Repeat("x", 1<<20)}}
	p.get = func(string) (io.ReadCloser, error) { return nil, errors.New("read") }
	there, err := objectstore.Exists(t.Context(), newStoreOver(t, p, nil), "k")
	require.NoError(t, err)
	require.True(t, there)
	require.EqualValues(t, 1, p.calls.Load())
}

// TestARangeIsFetchedOnce: of many ranges of one object the first pays.
func TestARangeIsFetchedOnce(t *testing.T) {
	p := &provider{objects: map[string]string{"k": strings.Repeat("0123456789", 1000)}}
	s := newStoreOver(t, p, nil)
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			rc, err := s.GetRange(t.Context(), "k", int64(10*i+3), 4)
			if err != nil {
				t.Error(err)
				return
			}
			data, err := io.ReadAll(rc)
			if err != nil || !bytes.Equal(data, []byte("3456")) {
				t.Errorf("%q, %v", data, err)
			}
			if err := rc.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 1, p.calls.Load())
}
