package storetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

func checkAbsent(t *testing.T, s objectstore.Store) {
	_, err := s.Get(t.Context(), "no/such")
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	_, err = s.GetRange(t.Context(), "no/such", 5, 0)
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	_, err = s.Stat(t.Context(), "no/such")
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	require.Empty(t, listKeys(t, s, ""))
	require.Empty(t, listKeys(t, s, "no/"))
	require.Empty(t, listPrefixes(t, s, ""))
	require.Empty(t, listPrefixes(t, s, "no/such/"))
	putObject(t, s, "a/b", "content")
	_, err = s.Get(t.Context(), "a")
	require.ErrorIs(t, err, objectstore.ErrNotFound, "a directory is not an object")
	_, err = s.Stat(t.Context(), "a")
	require.ErrorIs(t, err, objectstore.ErrNotFound, "a directory is not an object")
	_, err = s.Get(t.Context(), "a/b/c")
	require.ErrorIs(t, err, objectstore.ErrNotFound, "an object is not a directory")
}

func checkPut(t *testing.T, s objectstore.Store) {
	putObject(t, s, "a/b/c.txt", "first")
	before, err := s.Stat(t.Context(), "a/b/c.txt")
	require.NoError(t, err)
	require.Equal(t, "a/b/c.txt", before.Key)
	require.EqualValues(t, 5, before.Size)
	require.NotEmpty(t, before.ETag)

	putObject(t, s, "a/b/c.txt", "second one")
	require.Equal(t, "second one", getObject(t, s, "a/b/c.txt"))
	after, err := s.Stat(t.Context(), "a/b/c.txt")
	require.NoError(t, err)
	require.EqualValues(t, 10, after.Size)
	require.NotEqual(t, before.ETag, after.ETag)

	putObject(t, s, "empty", "")
	require.Empty(t, getObject(t, s, "empty"))
	big := patternBytes(3<<20+7, 1)
	require.NoError(t, objectstore.PutBytes(t.Context(), s, "big", big))
	require.True(t, string(big) == getObject(t, s, "big"))
}

func checkCreate(t *testing.T, s objectstore.Store) {
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "once", []byte("first")))
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, "once", []byte("second")), objectstore.ErrExists)
	require.Equal(t, "first", getObject(t, s, "once"))
	require.NoError(t, s.Delete(t.Context(), "once"))
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "once", []byte("third")))
	require.Equal(t, "third", getObject(t, s, "once"))
}

func checkCreateAfterPut(t *testing.T, s objectstore.Store) {
	putObject(t, s, "k", "put")
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, "k", nil), objectstore.ErrExists)
	require.Equal(t, "put", getObject(t, s, "k"))
}

func checkCreateRace(t *testing.T, s objectstore.Store) {
	for round := range 5 {
		key := fmt.Sprintf("race/%d/deep/key", round)
		checkOneWinner(t, s, key, raceCalls(t.Context(), 16, func(ctx context.Context, i int) error {
			return objectstore.CreateBytes(ctx, s, key, fmt.Appendf(nil, "content of %d", i))
		}))
	}
}

// checkOneWinner asserts that one call succeeded, that the others failed, and that the object is
// the winner's.
func checkOneWinner(t *testing.T, s objectstore.Store, key string, errs []error) {
	t.Helper()
	winner := -1
	for i, err := range errs {
		if err == nil {
			require.Equal(t, -1, winner, "two calls created %s", key)
			winner = i
			continue
		}
		require.ErrorIs(t, err, objectstore.ErrExists)
	}
	require.NotEqual(t, -1, winner, "no call created %s", key)
	require.Equal(t, fmt.Sprintf("content of %d", winner), getObject(t, s, key))
}

func checkSize(t *testing.T, s objectstore.Store) {
	for _, size := range []int64{0, 3, 5, -1} {
		err := s.Put(t.Context(), "wrong", bytes.NewReader([]byte("four")), size)
		require.ErrorIs(t, err, objectstore.ErrSize, "put with size %d", size)
		err = s.Create(t.Context(), "wrong", bytes.NewReader([]byte("four")), size)
		require.ErrorIs(t, err, objectstore.ErrSize, "create with size %d", size)
	}
	requireAbsent(t, s, "wrong")
}

func checkFailedReader(t *testing.T, s objectstore.Store) {
	require.ErrorIs(t, s.Put(t.Context(), "broken", &broken{left: 1000}, 1<<20), errBroken)
	require.ErrorIs(t, s.Create(t.Context(), "broken", &broken{left: 1000}, 1<<20), errBroken)
	requireAbsent(t, s, "broken")
	putObject(t, s, "kept", "content")
	require.ErrorIs(t, s.Put(t.Context(), "kept", &broken{left: 1000}, 1<<20), errBroken)
	require.Equal(t, "content", getObject(t, s, "kept"), "a failed put changed the object")
}

func checkReaderPosition(t *testing.T, s objectstore.Store) {
	r := bytes.NewReader([]byte("header:content"))
	_, err := r.Seek(7, io.SeekStart)
	require.NoError(t, err)
	require.NoError(t, s.Put(t.Context(), "tail", r, 7))
	require.Equal(t, "content", getObject(t, s, "tail"), "written from the reader's current position")
}

func checkDelete(t *testing.T, s objectstore.Store) {
	require.NoError(t, s.Delete(t.Context(), "never/was"))
	putObject(t, s, "d/one", "1")
	putObject(t, s, "d/two", "2")
	require.NoError(t, s.Delete(t.Context(), "d"), "a directory is not an object")
	require.NoError(t, s.Delete(t.Context(), "d/one"))
	require.NoError(t, s.Delete(t.Context(), "d/one"))
	require.Equal(t, []string{"d/two"}, listKeys(t, s, ""))
	require.NoError(t, s.Delete(t.Context(), "d/two"))
	require.Empty(t, listPrefixes(t, s, ""), "an emptied directory is no prefix")
	putObject(t, s, "p/x/1", "")
	putObject(t, s, "p/y", "")
	putObject(t, s, "q", "")
	n, err := objectstore.DeletePrefix(t.Context(), s, "p/")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{"q"}, listKeys(t, s, ""))
}

// checkDeleteRace writes and deletes neighbours at once: emptied directories must not take new
// objects with them.
func checkDeleteRace(t *testing.T, s objectstore.Store) {
	for _, err := range raceCalls(t.Context(), 8, func(ctx context.Context, i int) error {
		for n := range 20 {
			key := fmt.Sprintf("busy/%d/%d-%d", n%2, i, n)
			if err := objectstore.CreateBytes(ctx, s, key, []byte("x")); err != nil {
				return err
			}
			if _, err := s.Stat(ctx, key); err != nil {
				return err
			}
			if err := s.Delete(ctx, key); err != nil {
				return err
			}
		}
		return nil
	}) {
		require.NoError(t, err)
	}
	require.Empty(t, listKeys(t, s, ""))
}

func checkCancelled(t *testing.T, s objectstore.Store) {
	putObject(t, s, "k", "v")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, "k")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, objectstore.PutBytes(ctx, s, "new", []byte("v")), context.Canceled)
	require.ErrorIs(t, objectstore.CreateBytes(ctx, s, "new", []byte("v")), context.Canceled)
	require.ErrorIs(t, s.List(ctx, "", func(objectstore.Info) error { return nil }), context.Canceled)
	requireAbsent(t, s, "new")
}

// checkOpenReaderSurvives asserts that a reader gets one version of the object, whatever happens to
// the name.
func checkOpenReaderSurvives(t *testing.T, s objectstore.Store) {
	content := string(patternBytes(256<<10, 9))
	putObject(t, s, "k", content)
	rc, err := s.Get(t.Context(), "k")
	require.NoError(t, err)
	putObject(t, s, "k", "other")
	require.True(t, content == readAll(t, rc), "the reader mixed versions")
	require.Equal(t, "other", getObject(t, s, "k"))
}
