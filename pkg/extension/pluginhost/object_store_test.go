package pluginhost_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

// openBucket opens a provider whose bucket is in dir.
func openBucket(t *testing.T, s *pluginhost.Session, behaviour, dir string) action.ObjectStore {
	t.Helper()
	o, err := s.ObjectStore("test.io/"+behaviour, map[string]string{"dir": dir})
	require.NoError(t, err)
	return o
}

func testContent(n int) []byte {
	body := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(body)
	return body
}

func TestObjectsTravelWhole(t *testing.T) {
	o := openBucket(t, openSession(t, newVendorHost(t, nil)), "echo", t.TempDir())
	ctx := t.Context()
	for _, size := range []int{1, 256 << 10, 256<<10 + 1, 3 << 20} {
		body := testContent(size)
		require.NoError(t, o.Put(ctx, "b", "dir/key", iotest.OneByteReader(bytes.NewReader(body[:min(size, 1000)]))), "slowly")
		require.NoError(t, o.Put(ctx, "b", "dir/key", bytes.NewReader(body)))
		exists, err := o.Exists(ctx, "b", "dir/key")
		require.NoError(t, err)
		require.True(t, exists)
		r, err := o.Get(ctx, "b", "dir/key")
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.True(t, bytes.Equal(body, got))
	}
	require.NoError(t, o.Delete(ctx, "b", "dir/key"))
	exists, err := o.Exists(ctx, "b", "dir/key")
	require.NoError(t, err)
	require.False(t, exists)
	_, err = o.Get(ctx, "b", "dir/key")
	require.EqualError(t, err, "plugin test.io/echo: GetObject: no such key")

	url, err := o.SignedURL(ctx, "b", "dir/key", time.Minute)
	require.NoError(t, err)
	require.Equal(t, "https://b/dir/key?ttl=60000000000", url)
	prefixes, err := o.ListCommonPrefixes(ctx, "b", "/", "p/")
	require.NoError(t, err)
	require.Equal(t, []string{"p/a/"}, prefixes)
	keys, err := o.ListObjects(ctx, "b", "p/")
	require.NoError(t, err)
	require.Equal(t, []string{"p/key"}, keys)
}

func TestABodyThatFailsIsNotTakenForAWholeObject(t *testing.T) {
	dir := t.TempDir()
	o := openBucket(t, openSession(t, newVendorHost(t, nil)), "echo", dir)
	broken := errors.New("disk failed")
	err := o.Put(t.Context(), "b", "key", io.MultiReader(bytes.NewReader(testContent(1<<20)), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, o.Put(t.Context(), "b", "key", iotest.ErrReader(broken)), broken)
	require.ErrorContains(t, o.Put(t.Context(), "b", "key", strings.NewReader("")), "body is empty")
	require.NoError(t, o.Put(t.Context(), "b", "key", strings.NewReader("x")))
}

func TestASuccessBeforeTheWholeBodyIsNone(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	err := openBucket(t, s, "hasty", t.TempDir()).Put(t.Context(), "b", "key", bytes.NewReader(testContent(5<<20)))
	require.ErrorIs(t, err, pluginhost.ErrMalformed)
	require.ErrorContains(t, err, "before the whole body")
}

func TestAProcessIsToldItsConfigurationOnceHoweverManyUseIt(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	config := map[string]string{"dir": t.TempDir(), "once": "yes"}
	errs := make(chan error)
	for i := range 10 {
		o, err := s.ObjectStore("test.io/echo", config)
		require.NoError(t, err)
		go func() { errs <- o.Put(context.WithoutCancel(t.Context()), "b", formatInt(i), strings.NewReader("x")) }()
	}
	for range 10 {
		require.NoError(t, <-errs)
	}
}

func TestAConfigurationIsToldAgainToEveryNewProcess(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	one, two := t.TempDir(), t.TempDir()
	first, second := openBucket(t, s, "third", one), openBucket(t, s, "third", two)
	crashes := 0
	for i := range 8 { // each process dies at its third call
		for _, o := range []action.ObjectStore{first, second} {
			if err := o.Put(t.Context(), "b", formatInt(i), strings.NewReader("x")); err != nil {
				require.ErrorIs(t, err, pluginhost.ErrCrashed)
				crashes++
			}
		}
	}
	require.Equal(t, 4, crashes)
	for _, dir := range []string{one, two} {
		written, err := filepath.Glob(dir + "/*")
		require.NoError(t, err)
		require.Len(t, written, 6, "each provider writes where its own configuration says")
	}
}

func TestAReaderMayBeClosedInTheMiddle(t *testing.T) {
	o := openBucket(t, openSession(t, newVendorHost(t, nil)), "echo", t.TempDir())
	require.NoError(t, o.Put(t.Context(), "b", "key", bytes.NewReader(testContent(5<<20))))
	r, err := o.Get(t.Context(), "b", "key")
	require.NoError(t, err)
	_, err = io.ReadFull(r, make([]byte, 100))
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrClosedPipe)

	ctx, cancel := context.WithCancelCause(t.Context())
	r, err = o.Get(ctx, "b", "key")
	require.NoError(t, err)
	why := errors.New("cancelled")
	cancel(why)
	_, err = io.Copy(io.Discard, r)
	require.ErrorIs(t, err, why)
	require.NoError(t, r.Close())
}

func TestTransfersThatStopAreErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b-key"), testContent(1<<20), 0o600))
	for behaviour, want := range map[string]error{"hang": pluginhost.ErrTimeout, "freeze": pluginhost.ErrTimeout, "exit": pluginhost.ErrCrashed} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			fake := clocktesting.NewFakeClock(time.Unix(0, 0))
			s := openHanging(t, fake)
			through := func(transfer func(o action.ObjectStore) error) error {
				o := openBucket(t, s, behaviour, dir)
				if !errors.Is(want, pluginhost.ErrTimeout) {
					return transfer(o)
				}
				return outlastLimits(fake, func() error { return transfer(o) })
			}
			err := through(func(o action.ObjectStore) error {
				r, err := o.Get(t.Context(), "b", "key")
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, r) // it misbehaves after the first chunk
				require.NoError(t, r.Close())
				return err
			})
			require.ErrorIs(t, err, want)
			require.ErrorContains(t, err, "GetObject")
			require.ErrorIs(t, through(func(o action.ObjectStore) error {
				return o.Put(t.Context(), "b", "key2", bytes.NewReader(testContent(1<<20)))
			}), want)
		})
	}
}

// slowReader takes its time for every read.
type slowReader struct {
	r    io.Reader
	take func()
}

func (s slowReader) Read(p []byte) (int, error) {
	s.take()
	return s.r.Read(p)
}

func TestOurOwnSlownessIsNoTimeoutOfThePlugin(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	h := newVendorHost(t, func(c *pluginhost.Config) { c.Clock, c.Limits = fake, pluginhost.Limits{Storage: time.Minute} })
	o := openBucket(t, openSession(t, h), "echo", t.TempDir())
	body := testContent(2 << 20)
	require.NoError(t, o.Put(t.Context(), "b", "key", slowReader{bytes.NewReader(body), func() { fake.Step(time.Hour) }}))
	r, err := o.Get(t.Context(), "b", "key")
	require.NoError(t, err)
	got, err := io.ReadAll(slowReader{r, func() { fake.Step(time.Hour) }})
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, got))
	require.NoError(t, r.Close())
}
