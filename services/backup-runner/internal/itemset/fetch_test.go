package itemset_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// A spool that was fetched has the objects of the one that was uploaded; one with another hash than
// in its record leaves no file.
func TestFetch(t *testing.T) {
	w, err := itemset.CreateSpool(t.TempDir())
	require.NoError(t, err)
	_, err = w.Add(&itemset.SpooledItem{Kind: "Pod", Resource: "pods", Namespace: "a", Name: "x", Raw: []byte(`{"kind":"Pod"}`)})
	require.NoError(t, err)
	file, err := w.Finish()
	require.NoError(t, err)
	data, err := os.ReadFile(file.Path)
	require.NoError(t, err)
	store, dir := memstore.New(), t.TempDir()
	store.Set("k", data)

	path, err := itemset.FetchSpool(t.Context(), store, dir, "k", file.Size, file.SHA256)
	require.NoError(t, err)
	it, err := itemset.ReadSpooled(path, 0)
	require.NoError(t, err)
	require.Equal(t, "x", it.Name)
	require.NoError(t, os.Remove(path))

	_, err = itemset.FetchSpool(t.Context(), store, dir, "k", file.Size+1, file.SHA256)
	require.ErrorIs(t, err, journal.ErrCorrupt)
	data[len(data)-1] ^= 1
	store.Set("k", data)
	_, err = itemset.FetchSpool(t.Context(), store, dir, "k", file.Size, file.SHA256)
	require.ErrorIs(t, err, journal.ErrCorrupt)
	_, err = itemset.FetchSpool(t.Context(), store, dir, "gone", file.Size, file.SHA256)
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestFilesAreRemovedOnce(t *testing.T) {
	dir := t.TempDir()
	var files itemset.SpoolFiles
	for range 3 {
		w, err := itemset.CreateSpool(dir)
		require.NoError(t, err)
		files.Add(w.Path())
		_, err = w.Finish()
		require.NoError(t, err)
	}
	gone := files.Path(1)
	require.NoError(t, os.Remove(gone))
	files.Drop(1)
	require.Empty(t, files.Path(1))
	require.Len(t, files.All(), 3, "the others keep their numbers")
	files.Remove()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
