package pluginstore_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/pluginstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/pluginstore/directoryplugin"
	"github.com/holdfast-io/holdfast/pkg/objectstore/storetest"
)

func TestMain(m *testing.M) {
	if served, err := directoryplugin.Serve(); served {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// bucket is a directory behind the plugin.
type bucket struct {
	*pluginstore.Store
	dir string // of the bucket
}

// newBucket opens a store of a new bucket in a session of its own.
func newBucket(t testing.TB, h *pluginhost.Host, config map[string]string, change func(*pluginstore.Config)) bucket {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{directoryplugin.ConfigDir: dir}
	for k, v := range config {
		all[k] = v
	}
	b := bucket{dir: filepath.Join(dir, "b")}
	require.NoError(t, os.Mkdir(b.dir, 0o755))
	session := h.Open(t.Context(), slog.New(slog.DiscardHandler))
	plugin, err := session.ObjectStore(directoryplugin.Name, all)
	require.NoError(t, err)
	c := pluginstore.Config{
		Plugin: plugin, Bucket: "b", Dir: t.TempDir(), Locks: &pluginstore.Locks{}, End: func() error { session.Close(); return nil },
	}
	if change != nil {
		change(&c)
	}
	b.Store = pluginstore.New(c)
	t.Cleanup(func() {
		require.NoError(t, b.Close())
		left, err := os.ReadDir(c.Dir)
		require.NoError(t, err)
		require.Empty(t, left, "copies have no names")
	})
	return b
}

func putObject(t testing.TB, s objectstore.Store, key, content string) {
	t.Helper()
	require.NoError(t, objectstore.PutBytes(t.Context(), s, key, []byte(content)))
}

func TestConformance(t *testing.T) {
	h := directoryplugin.Host(t, pluginhost.Limits{})
	storetest.Run(t, func(t testing.TB) objectstore.Store { return newBucket(t, h, nil, nil).Store }, storetest.Times, storetest.ListedInfo)
}

// TestRangesWithoutRoomForCopies reads every range from the start of its object.
func TestRangesWithoutRoomForCopies(t *testing.T) {
	b := newBucket(t, directoryplugin.Host(t, pluginhost.Limits{}), nil, func(c *pluginstore.Config) { c.SpoolBytes = 9 })
	putObject(t, b, "k", "0123456789")
	for range 2 {
		for _, c := range []struct {
			off, n int64
			want   string
		}{{0, -1, "0123456789"}, {3, 4, "3456"}, {7, -1, "789"}, {7, 100, "789"}, {10, 1, ""}, {1 << 40, -1, ""}, {4, 0, ""}} {
			rc, err := b.GetRange(t.Context(), "k", c.off, c.n)
			require.NoError(t, err)
			data, err := io.ReadAll(rc)
			require.NoError(t, err)
			require.NoError(t, rc.Close())
			require.Equal(t, c.want, string(data), "range %d+%d", c.off, c.n)
		}
		info, err := b.Stat(t.Context(), "k")
		require.NoError(t, err)
		require.EqualValues(t, 10, info.Size)
	}
}

func TestAnEmptyObjectIsStoredAsAText(t *testing.T) {
	b := newBucket(t, directoryplugin.Host(t, pluginhost.Limits{}), nil, nil)
	putObject(t, b, "empty", "")
	text, err := os.ReadFile(filepath.Join(b.dir, "empty"))
	require.NoError(t, err)
	require.Contains(t, string(text), "is empty")
	info, err := b.Stat(t.Context(), "empty")
	require.NoError(t, err)
	require.Zero(t, info.Size)

	for _, content := range []string{string(text) + ".", string(text[:len(text)-1]), "x"} { // near, but not the text
		putObject(t, b, "near", content)
		data, err := objectstore.ReadAll(t.Context(), b, "near", 1000)
		require.NoError(t, err)
		require.Equal(t, content, string(data))
	}
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "foreign"), nil, 0o600))
	data, err := objectstore.ReadAll(t.Context(), b, "foreign", 1000)
	require.NoError(t, err)
	require.Empty(t, data, "an empty object of somebody else's")
}

func TestURLsAreThePluginsIfItMakesAny(t *testing.T) {
	h := directoryplugin.Host(t, pluginhost.Limits{})
	b := newBucket(t, h, map[string]string{directoryplugin.ConfigPublicURL: "https://files.example"}, nil)
	view, err := objectstore.WithPrefix(b, "p/")
	require.NoError(t, err)
	url, err := view.(objectstore.Signer).SignGet(t.Context(), "k", 10*time.Minute)
	require.NoError(t, err)
	require.Equal(t, "https://files.example/b/p/k?ttl=10m0s", url)

	_, err = newBucket(t, h, nil, nil).SignGet(t.Context(), "k", time.Minute)
	require.ErrorIs(t, err, objectstore.ErrUnsigned)
	for _, fault := range []string{"refuse", "panic"} {
		b := newBucket(t, h, map[string]string{directoryplugin.ConfigFault: fault + " CreateSignedURL"}, nil)
		_, err = b.SignGet(t.Context(), "k", time.Minute)
		require.ErrorIs(t, err, objectstore.ErrUnsigned, fault)
	}
	b = newBucket(t, h, map[string]string{directoryplugin.ConfigFault: "exit CreateSignedURL"}, nil)
	_, err = b.SignGet(t.Context(), "k", time.Minute)
	require.ErrorIs(t, err, pluginhost.ErrCrashed)
	require.NotErrorIs(t, err, objectstore.ErrUnsigned, "it may well sign the next time")
}

// TestAMisbehavingPluginCostsItsCalls has every method fail in every way; each call ends with an
// error that names plugin and method, and the others work.
func TestAMisbehavingPluginCostsItsCalls(t *testing.T) {
	t.Parallel()
	limits := pluginhost.Limits{Stop: 100 * time.Millisecond, Deaths: 100}
	patient := directoryplugin.Host(t, limits)
	limits.Storage = 2 * time.Second
	hasty := directoryplugin.Host(t, limits)
	calls := map[string]func(ctx context.Context, s objectstore.Store) error{
		"PutObject": func(ctx context.Context, s objectstore.Store) error {
			return objectstore.PutBytes(ctx, s, "new", []byte("x"))
		},
		"ObjectExists": func(ctx context.Context, s objectstore.Store) error {
			return objectstore.CreateBytes(ctx, s, "new", []byte("x"))
		},
		"GetObject": func(ctx context.Context, s objectstore.Store) error { _, err := s.Stat(ctx, "there"); return err },
		"ListCommonPrefixes": func(ctx context.Context, s objectstore.Store) error {
			_, err := s.ListPrefixes(ctx, "")
			return err
		},
		"ListObjects": func(ctx context.Context, s objectstore.Store) error {
			return s.List(ctx, "", func(objectstore.Info) error { return nil })
		},
		"DeleteObject": func(ctx context.Context, s objectstore.Store) error { return s.Delete(ctx, "there") },
	}
	for method, call := range calls {
		for fault, want := range map[string]error{
			"hang": pluginhost.ErrTimeout, "exit": pluginhost.ErrCrashed, "panic": pluginhost.ErrPanicked, "refuse": nil,
		} {
			t.Run(fault+" "+method, func(t *testing.T) {
				t.Parallel()
				h := patient
				if fault == "hang" {
					h = hasty
				}
				b := newBucket(t, h, map[string]string{directoryplugin.ConfigFault: fault + " " + method}, nil)
				require.NoError(t, os.WriteFile(filepath.Join(b.dir, "there"), []byte("x"), 0o600))
				err := call(t.Context(), b)
				own := new(pluginhost.Error)
				require.ErrorAs(t, err, &own)
				require.Equal(t, directoryplugin.Name, own.Plugin)
				require.Equal(t, method, own.Method)
				if want != nil {
					require.ErrorIs(t, err, want)
				}
				require.NotErrorIs(t, err, objectstore.ErrNotFound)
				require.NoError(t, callOtherMethod(t, b, method))
			})
		}
	}
}

// callOtherMethod makes a call that does not need the method.
func callOtherMethod(t *testing.T, s objectstore.Store, method string) error {
	t.Helper()
	if method == "ObjectExists" {
		return objectstore.PutBytes(t.Context(), s, "other", []byte("x"))
	}
	_, err := objectstore.Exists(t.Context(), s, "there")
	return err
}

func TestAnInitThatFailsNamesWhatThePluginSays(t *testing.T) {
	b := newBucket(t, directoryplugin.Host(t, pluginhost.Limits{}), map[string]string{"refused": "yes"}, nil)
	_, err := b.Stat(t.Context(), "k")
	require.ErrorContains(t, err, "plugin "+directoryplugin.Name)
	require.ErrorContains(t, err, "refused: unknown key")
}

// TestRangesAreOfOneVersion changes an object behind the store's back.
func TestRangesAreOfOneVersion(t *testing.T) {
	b := newBucket(t, directoryplugin.Host(t, pluginhost.Limits{}), nil, nil)
	direct, err := filestore.Open(b.dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, direct.Close()) })
	part := func(off, n int64) string {
		rc, err := b.GetRange(t.Context(), "k", off, n)
		require.NoError(t, err)
		defer func() { require.NoError(t, rc.Close()) }()
		data, err := io.ReadAll(rc)
		require.NoError(t, err)
		return string(data)
	}
	putObject(t, direct, "k", "0123456789")
	require.Equal(t, "56", part(5, 2))
	putObject(t, direct, "k", "abcdefghij")
	require.Equal(t, "78", part(7, 2))
	require.Equal(t, "01", part(0, 2))
	open, err := b.GetRange(t.Context(), "k", 8, -1)
	require.NoError(t, err)
	info, err := b.Stat(t.Context(), "k")
	require.NoError(t, err)
	require.EqualValues(t, 10, info.Size)
	require.Equal(t, "hi", part(7, 2), "Stat looks anew")
	putObject(t, b, "k", "ABCDEFGHIJKLM")
	require.Equal(t, "KLM", part(10, 5), "so does what follows a write")
	data, err := io.ReadAll(open)
	require.NoError(t, err)
	require.Equal(t, "89", string(data), "a reader keeps its version")
	require.NoError(t, open.Close())
	require.NoError(t, b.Delete(t.Context(), "k"))
	_, err = b.GetRange(t.Context(), "k", 3, 1)
	require.ErrorIs(t, err, objectstore.ErrNotFound)
}

func TestFarMoreObjectsThanCopies(t *testing.T) {
	b := newBucket(t, directoryplugin.Host(t, pluginhost.Limits{}), nil, func(c *pluginstore.Config) { c.SpoolBytes = 100 })
	for i := range 50 {
		putObject(t, b, fmt.Sprint("k", i), strings.Repeat("x", i)+"end")
	}
	for range 2 {
		for i := range 50 {
			rc, err := b.GetRange(t.Context(), fmt.Sprint("k", i), int64(i), -1)
			require.NoError(t, err)
			data, err := io.ReadAll(rc)
			require.NoError(t, err)
			require.NoError(t, rc.Close())
			require.Equal(t, "end", string(data))
		}
	}
}
