package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// RunUploads checks SweepUploads of stores in which dead writers leave something. open returns a
// new, empty store and what leaves an unfinished write to a key in it, as a killed process does.
func RunUploads(t *testing.T, open func(t testing.TB) (s objectstore.Store, leave func(key string))) {
	t.Helper()
	for name, check := range map[string]func(*testing.T, objectstore.Store, func(string)){
		"uploads":              checkUploads,
		"uploads in views":     checkUploadViews,
		"uploads and failures": checkUploadFailures,
	} {
		t.Run(name, func(t *testing.T) {
			s, leave := open(t)
			check(t, s, leave)
		})
	}
}

// unfinishedKeys lists the keys of unfinished writes in order, and touches none.
func unfinishedKeys(t testing.TB, s objectstore.Store, prefix string) []string {
	t.Helper()
	keys := []string{}
	n, err := objectstore.SweepUploads(t.Context(), s, prefix, func(u objectstore.Upload) (bool, error) {
		require.WithinDuration(t, time.Now(), u.Begun, 10*time.Minute) //nolint:forbidigo // the store's clock is the real one
		keys = append(keys, u.Key)
		return false, nil
	})
	require.NoError(t, err)
	require.Zero(t, n)
	slices.Sort(keys)
	return keys
}

func checkUploads(t *testing.T, s objectstore.Store, leave func(string)) {
	require.Empty(t, unfinishedKeys(t, s, ""))
	putObject(t, s, "a/done", "x")
	_, err := s.Compose(t.Context(), "a/composed", []objectstore.Source{{Key: "a/done", Length: -1}})
	require.NoError(t, err)
	require.Empty(t, unfinishedKeys(t, s, ""), "a finished write leaves nothing")

	for _, key := range []string{"a/one", "a/b c/%2F+two", "ab/three", "a/done"} {
		leave(key)
	}
	require.Equal(t, []string{"a/composed", "a/done"}, listKeys(t, s, ""), "not listed as objects")
	require.Equal(t, []string{"a/b c/%2F+two", "a/done", "a/one", "ab/three"}, unfinishedKeys(t, s, ""))
	require.Equal(t, []string{"a/b c/%2F+two", "a/done", "a/one"}, unfinishedKeys(t, s, "a/"))

	n, err := objectstore.SweepUploads(t.Context(), s, "a/", func(u objectstore.Upload) (bool, error) { return u.Key != "a/one", nil })
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{"a/one", "ab/three"}, unfinishedKeys(t, s, ""))
	require.Equal(t, "x", getObject(t, s, "a/done"), "the object of that name stays")
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "a/one", []byte("after")))
	require.Equal(t, "after", getObject(t, s, "a/one"), "an unfinished write is in nobody's way")
}

func checkUploadViews(t *testing.T, s objectstore.Store, leave func(string)) {
	leave("team/one/a/x")
	leave("team/one-not/a/x")
	view, err := objectstore.WithPrefix(s, "team/one/")
	require.NoError(t, err)
	require.Equal(t, []string{"a/x"}, unfinishedKeys(t, view, ""))
	require.Equal(t, []string{"a/x"}, unfinishedKeys(t, view, "a/"))
	require.Empty(t, unfinishedKeys(t, view, "b/"))
	all := func(objectstore.Upload) (bool, error) { return true, nil }
	_, err = objectstore.SweepUploads(t.Context(), objectstore.ReadOnly(view), "", all)
	require.ErrorIs(t, err, objectstore.ErrReadOnly)
	_, err = objectstore.SweepUploads(t.Context(), objectstore.ReadOnly(view, "b/"), "b/", all)
	require.NoError(t, err, "what may be written may be swept")
	_, err = objectstore.SweepUploads(t.Context(), view, "../", all)
	require.ErrorIs(t, err, objectstore.ErrInvalidKey)
	n, err := objectstore.SweepUploads(t.Context(), view, "", all)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"team/one-not/a/x"}, unfinishedKeys(t, s, ""))
}

func checkUploadFailures(t *testing.T, s objectstore.Store, leave func(string)) {
	for _, key := range []string{"a/1", "a/2", "a/3"} {
		leave(key)
	}
	calls := 0
	enough := errors.New("enough")
	n, err := objectstore.SweepUploads(t.Context(), s, "", func(objectstore.Upload) (bool, error) {
		if calls++; calls == 2 {
			return true, enough
		}
		return true, nil
	})
	require.ErrorIs(t, err, enough)
	require.Equal(t, 1, n)
	require.Len(t, unfinishedKeys(t, s, ""), 2)
}
