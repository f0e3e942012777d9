package filestore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/storetest"
)

func openStore(t testing.TB) (*filestore.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := filestore.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, dir
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t testing.TB) objectstore.Store {
		s, _ := openStore(t)
		return s
	})
}

func TestOpenNeedsDirectory(t *testing.T) {
	_, err := filestore.Open(filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, objectstore.ErrNoBucket)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = filestore.Open(file)
	require.ErrorIs(t, err, objectstore.ErrNoBucket)
}

func TestRemovedBucketIsNamed(t *testing.T) {
	s, dir := openStore(t)
	require.NoError(t, os.RemoveAll(dir))
	err := s.List(t.Context(), "", func(objectstore.Info) error { return nil })
	require.ErrorIs(t, err, objectstore.ErrNoBucket)
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, "a/b", nil), objectstore.ErrNoBucket)
	_, err = s.Get(t.Context(), "a")
	require.ErrorIs(t, err, objectstore.ErrNoBucket)
}

func TestNothingIsLeftBehind(t *testing.T) {
	s, dir := openStore(t)
	require.NoError(t, objectstore.PutBytes(t.Context(), s, "a/b/c", []byte("x")))
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, "a/b/c", nil), objectstore.ErrExists)
	require.ErrorIs(t, s.Put(t.Context(), "a/d", strings.NewReader("four"), 9), objectstore.ErrSize)
	require.NoError(t, s.Delete(t.Context(), "a/b/c"))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestSymbolicLinksDoNotLeave(t *testing.T) {
	s, dir := openStore(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "way-out")))
	_, err := s.Get(t.Context(), "way-out/secret")
	require.Error(t, err)
	require.Error(t, objectstore.PutBytes(t.Context(), s, "way-out/new", nil))
	require.NoFileExists(t, filepath.Join(outside, "new"))
	require.NoError(t, s.List(t.Context(), "", func(i objectstore.Info) error {
		t.Errorf("listed %s", i.Key)
		return nil
	}))
}

func TestConflictsAndLongNamesAreInvalidKeys(t *testing.T) {
	s, _ := openStore(t)
	require.NoError(t, objectstore.PutBytes(t.Context(), s, "a", nil))
	require.NoError(t, objectstore.PutBytes(t.Context(), s, "d/x", nil))
	for _, key := range []string{"a/b", "d", strings.Repeat("n", 256), "x/" + strings.Repeat("n", 256) + "/y", ".holdfast-tmp/x"} {
		require.ErrorIs(t, objectstore.PutBytes(t.Context(), s, key, nil), objectstore.ErrInvalidKey, key)
		require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, key, nil), objectstore.ErrInvalidKey, key)
	}
	_, err := s.Get(t.Context(), strings.Repeat("n", 256))
	require.ErrorIs(t, err, objectstore.ErrNotFound)
}

func TestTemporaryFilesAreHiddenAndSwept(t *testing.T) {
	dir := t.TempDir()
	tmp := filepath.Join(dir, ".holdfast-tmp")
	require.NoError(t, os.Mkdir(tmp, 0o755))
	stale, fresh := filepath.Join(tmp, "stale"), filepath.Join(tmp, "fresh")
	require.NoError(t, os.WriteFile(stale, []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(fresh, []byte("x"), 0o600))
	fi, err := os.Stat(fresh)
	require.NoError(t, err)
	old := fi.ModTime().Add(-25 * time.Hour)
	require.NoError(t, os.Chtimes(stale, old, old))
	s, err := filestore.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoFileExists(t, stale)
	require.FileExists(t, fresh, "another process may be writing it")
	dirs, err := s.ListPrefixes(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, dirs)
}

// Backups hold the Secrets of a cluster.
func TestOthersCannotRead(t *testing.T) {
	s, dir := openStore(t)
	require.NoError(t, objectstore.PutBytes(t.Context(), s, "a/put", []byte("x")))
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "a/created", []byte("x")))
	_, err := s.Compose(t.Context(), "a/composed", []objectstore.Source{{Key: "a/put", Length: -1}})
	require.NoError(t, err)
	for _, name := range []string{"a", "a/put", "a/created", "a/composed"} {
		fi, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Zero(t, fi.Mode().Perm()&0o007, name)
	}
}
