package storetest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

func checkRanges(t *testing.T, s objectstore.Store) {
	putObject(t, s, "r", "0123456789")
	for _, c := range []struct {
		off, n int64
		want   string
	}{
		{0, 10, "0123456789"}, {0, -1, "0123456789"}, {0, 1, "0"}, {3, 4, "3456"}, {9, 1, "9"}, {7, -1, "789"},
		{7, 100, "789"}, {10, 1, ""}, {10, -1, ""}, {11, 5, ""}, {4, 0, ""}, {1 << 40, -1, ""},
	} {
		require.Equal(t, c.want, getRange(t, s, "r", c.off, c.n), "range %d+%d", c.off, c.n)
	}
	_, err := s.GetRange(t.Context(), "r", -1, 5)
	require.ErrorIs(t, err, objectstore.ErrInvalidRange)
	putObject(t, s, "empty", "")
	require.Empty(t, getRange(t, s, "empty", 0, 5))
	require.Empty(t, getRange(t, s, "empty", 3, -1))
}

func checkKeys(t *testing.T, s objectstore.Store) {
	ctx := t.Context()
	for _, key := range []string{
		"", "/", "/abs", "a//b", "a/", ".", "..", "../up", "a/../b", "a/..", "a/./b", "nul\x00", "line\nbreak",
		"bad\xff", strings.Repeat("k", objectstore.MaxKeyBytes+1),
	} {
		_, err := s.Get(ctx, key)
		require.ErrorIs(t, err, objectstore.ErrInvalidKey, "get %q", key)
		_, err = s.GetRange(ctx, key, 0, 1)
		require.ErrorIs(t, err, objectstore.ErrInvalidKey, "range %q", key)
		_, err = s.Stat(ctx, key)
		require.ErrorIs(t, err, objectstore.ErrInvalidKey, "stat %q", key)
		require.ErrorIs(t, objectstore.PutBytes(ctx, s, key, nil), objectstore.ErrInvalidKey, "put %q", key)
		require.ErrorIs(t, objectstore.CreateBytes(ctx, s, key, nil), objectstore.ErrInvalidKey, "create %q", key)
		require.ErrorIs(t, s.Delete(ctx, key), objectstore.ErrInvalidKey, "delete %q", key)
		_, err = s.Compose(ctx, key, nil)
		require.ErrorIs(t, err, objectstore.ErrInvalidKey, "compose %q", key)
		_, err = s.Compose(ctx, "fine", []objectstore.Source{{Key: key, Length: -1}})
		require.ErrorIs(t, err, objectstore.ErrInvalidKey, "compose from %q", key)
	}
	for _, prefix := range []string{"/", "../", "a//", "/a", "a/../"} {
		require.ErrorIs(t, s.List(ctx, prefix, nil), objectstore.ErrInvalidKey, "list %q", prefix)
		_, err := s.ListPrefixes(ctx, prefix)
		require.ErrorIs(t, err, objectstore.ErrInvalidKey, "prefixes %q", prefix)
	}
	_, err := s.ListPrefixes(ctx, "no-slash")
	require.ErrorIs(t, err, objectstore.ErrInvalidKey)
	require.Empty(t, listKeys(t, s, ""))
}

func checkLegalKeys(t *testing.T, s objectstore.Store) {
	keys := []string{
		"a b", "a+b", "a%2Fb", "a&b=c?d#e", "semi;colon,comma", "quote'\"", "ünïcode/日本", "...", "..a", "a..", "~tilde", "UPPER/lower",
		"backups/" + strings.Repeat("n", 220) + "/" + strings.Repeat("n", 220) + "-logs.gz",
	}
	for _, key := range keys {
		putObject(t, s, key, "content of "+key)
	}
	for _, key := range keys {
		require.Equal(t, "content of "+key, getObject(t, s, key))
	}
	slices.Sort(keys)
	require.Equal(t, keys, listKeys(t, s, ""))
	for _, key := range keys {
		require.NoError(t, s.Delete(t.Context(), key))
	}
	require.Empty(t, listKeys(t, s, ""))
}

// checkListOrder uses names around "/" (0x2f), where sorting directories by bare name gets it
// wrong.
func checkListOrder(t *testing.T, s objectstore.Store) {
	keys := []string{
		"a!x", "a-b/1", "a-b/2", "a.txt", "a/1", "a/10", "a/2", "a/b/c", "a0", "ab", "b/c/d/e", "b/c/d0", "c",
	}
	for i := range keys {
		putObject(t, s, keys[len(keys)-1-i], "x")
	}
	require.Equal(t, keys, listKeys(t, s, ""))
	require.Equal(t, []string{"a-b/1", "a-b/2"}, listKeys(t, s, "a-"))
	require.Equal(t, []string{"a/1", "a/10", "a/2", "a/b/c"}, listKeys(t, s, "a/"))
	require.Equal(t, []string{"a/1", "a/10"}, listKeys(t, s, "a/1"))
	require.Equal(t, []string{"b/c/d/e", "b/c/d0"}, listKeys(t, s, "b/c/d"))
	require.Equal(t, []string{"c"}, listKeys(t, s, "c"))
	require.Empty(t, listKeys(t, s, "a/1/"))
	require.Empty(t, listKeys(t, s, "zzz"))
}

func checkListedInfo(t *testing.T, s objectstore.Store) {
	putObject(t, s, "a/1", "x")
	require.NoError(t, s.List(t.Context(), "a/", func(i objectstore.Info) error {
		require.EqualValues(t, 1, i.Size)
		require.NotEmpty(t, i.ETag)
		require.False(t, i.ModTime.IsZero())
		return nil
	}))
}

func checkTimes(t *testing.T, s objectstore.Store) {
	putObject(t, s, "a", "x")
	info, err := s.Stat(t.Context(), "a")
	require.NoError(t, err)
	require.False(t, info.ModTime.IsZero())
}

// checkExists asks the store and its views, some of which have a way of their own.
func checkExists(t *testing.T, s objectstore.Store) {
	putObject(t, s, "team/a", "x")
	view, err := objectstore.WithPrefix(s, "team/")
	require.NoError(t, err)
	for _, c := range []struct {
		store objectstore.Store
		key   string
		want  bool
	}{
		{s, "team/a", true}, {s, "team", false}, {s, "team/b", false}, {s, "team/a/b", false},
		{view, "a", true}, {view, "team/a", false}, {objectstore.ReadOnly(view), "a", true}, {objectstore.ReadOnly(s), "a", false},
	} {
		got, err := objectstore.Exists(t.Context(), c.store, c.key)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%s", c.key)
	}
	for _, key := range []string{"", "../team/a", "a/"} {
		_, err := objectstore.Exists(t.Context(), view, key)
		require.ErrorIs(t, err, objectstore.ErrInvalidKey)
	}
}

// checkListMany lists more than one page of any known store (1,000 keys).
func checkListMany(t *testing.T, s objectstore.Store) {
	const n = 1203
	want := make([]string, n)
	for i := range want {
		want[i] = fmt.Sprintf("many/%04d/object", i)
		putObject(t, s, want[i], "")
	}
	require.Equal(t, want, listKeys(t, s, ""))
	require.Equal(t, want[1000:1100], listKeys(t, s, "many/10"))
	dirs := listPrefixes(t, s, "many/")
	require.Len(t, dirs, n)
	require.True(t, slices.IsSorted(dirs))
	require.Equal(t, "1202/", dirs[n-1])
}

func checkListStop(t *testing.T, s objectstore.Store) {
	for _, key := range []string{"a", "b/c", "d"} {
		putObject(t, s, key, "")
	}
	for _, stop := range []error{fs.SkipAll, errors.New("enough")} {
		var seen []string
		err := s.List(t.Context(), "", func(i objectstore.Info) error {
			if seen = append(seen, i.Key); len(seen) == 2 {
				return stop
			}
			return nil
		})
		require.Equal(t, []string{"a", "b/c"}, seen)
		if errors.Is(stop, fs.SkipAll) {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, stop)
		}
	}
}

func checkListPrefixes(t *testing.T, s objectstore.Store) {
	for _, key := range []string{"backups/b1/x", "backups/b1/parts/p", "backups/b2/x", "backups/file", "root-file", "restores/r/x"} {
		putObject(t, s, key, "")
	}
	require.Equal(t, []string{"backups/", "restores/"}, listPrefixes(t, s, ""))
	require.Equal(t, []string{"b1/", "b2/"}, listPrefixes(t, s, "backups/"))
	require.Equal(t, []string{"parts/"}, listPrefixes(t, s, "backups/b1/"))
	require.Empty(t, listPrefixes(t, s, "backups/b2/"))
	require.Empty(t, listPrefixes(t, s, "root-file/"))
}

func checkPrefixView(t *testing.T, s objectstore.Store) {
	view, err := objectstore.WithPrefix(s, "team/one/")
	require.NoError(t, err)
	putObject(t, s, "outside", "secret")
	putObject(t, s, "team/one-not", "secret")
	putObject(t, view, "a/b", "inside")
	require.Equal(t, "inside", getObject(t, s, "team/one/a/b"))
	require.Equal(t, []string{"a/b"}, listKeys(t, view, ""))
	require.Equal(t, []string{"a/"}, listPrefixes(t, view, ""))
	require.Equal(t, "sid", getRange(t, view, "a/b", 2, 3))
	info, err := view.Stat(t.Context(), "a/b")
	require.NoError(t, err)
	require.Equal(t, "a/b", info.Key)
	info, err = view.Compose(t.Context(), "joined", []objectstore.Source{{Key: "a/b", Length: -1}, {Data: []byte("!")}})
	require.NoError(t, err)
	require.Equal(t, "joined", info.Key)
	require.Equal(t, "inside!", getObject(t, view, "joined"))
	for _, key := range []string{"../one-not", "../../outside", "/outside"} {
		_, err = view.Get(t.Context(), key)
		require.ErrorIs(t, err, objectstore.ErrInvalidKey)
		require.ErrorIs(t, view.Delete(t.Context(), key), objectstore.ErrInvalidKey)
		_, err = view.Compose(t.Context(), "stolen", []objectstore.Source{{Key: key, Length: -1}})
		require.ErrorIs(t, err, objectstore.ErrInvalidKey)
	}
	n, err := objectstore.DeletePrefix(t.Context(), view, "")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{"outside", "team/one-not"}, listKeys(t, s, ""))
	_, err = objectstore.WithPrefix(s, "no-slash")
	require.ErrorIs(t, err, objectstore.ErrInvalidKey)
}

func checkReadOnlyView(t *testing.T, s objectstore.Store) {
	putObject(t, s, "k", "v")
	view := objectstore.ReadOnly(s)
	require.Equal(t, "v", getObject(t, view, "k"))
	require.ErrorIs(t, objectstore.PutBytes(t.Context(), view, "k", nil), objectstore.ErrReadOnly)
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), view, "n", nil), objectstore.ErrReadOnly)
	require.ErrorIs(t, view.Delete(t.Context(), "k"), objectstore.ErrReadOnly)
	_, err := view.Compose(t.Context(), "n", nil)
	require.ErrorIs(t, err, objectstore.ErrReadOnly)
	require.Equal(t, []string{"k"}, listKeys(t, s, ""))

	view = objectstore.ReadOnly(s, "mine/")
	require.NoError(t, objectstore.CreateBytes(t.Context(), view, "mine/a", nil))
	require.NoError(t, objectstore.PutBytes(t.Context(), view, "mine/b", []byte("v")))
	_, err = view.Compose(t.Context(), "mine/c", []objectstore.Source{{Key: "mine/b", Length: 1}})
	require.NoError(t, err)
	require.NoError(t, view.Delete(t.Context(), "mine/a"))
	require.ErrorIs(t, view.Delete(t.Context(), "mine"), objectstore.ErrReadOnly)
	require.ErrorIs(t, view.Delete(t.Context(), "k"), objectstore.ErrReadOnly)
	require.Equal(t, []string{"k", "mine/b", "mine/c"}, listKeys(t, s, ""))
}
