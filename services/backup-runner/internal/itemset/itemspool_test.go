package itemset_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

func newObject(i int) *itemset.SpooledItem {
	return &itemset.SpooledItem{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "a", Name: fmt.Sprintf("d-%d", i),
		Cut: []string{"", "7"}[i%2], Raw: []byte(`{"kind":"Deployment","i":` + strings.Repeat("1", i+1) + `}`)}
}

func TestObjectsAreReadFromAnyPlace(t *testing.T) {
	w, err := itemset.CreateSpool(t.TempDir())
	require.NoError(t, err)
	at := map[int64]int{}
	for i := range 50 {
		if i == 20 { // a page that is rolled back
			m := w.Mark()
			_, err := w.Add(newObject(99))
			require.NoError(t, err)
			require.NoError(t, w.Rewind(m))
		}
		offset, err := w.Add(newObject(i))
		require.NoError(t, err)
		at[offset] = i
	}
	require.Equal(t, 50, w.Items())
	f, err := w.Finish()
	require.NoError(t, err)
	info, err := os.Stat(f.Path)
	require.NoError(t, err)
	require.Equal(t, info.Size(), f.Size)
	require.Len(t, f.SHA256, 64)
	for offset, i := range at {
		it, err := itemset.ReadSpooled(f.Path, offset)
		require.NoError(t, err)
		require.Equal(t, *newObject(i), it)
	}
	next := 0
	require.NoError(t, itemset.EachSpooled(f.Path, func(offset int64, it *itemset.SpooledItem) error {
		require.Equal(t, next, at[offset])
		require.Equal(t, newObject(next).Name, it.Name)
		next++
		return nil
	}))
	require.Equal(t, 50, next)
}

func TestDiscardedFilesAreGone(t *testing.T) {
	dir := t.TempDir()
	w, err := itemset.CreateSpool(dir)
	require.NoError(t, err)
	_, err = w.Add(newObject(1))
	require.NoError(t, err)
	w.Discard()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A record that names a length is not believed: half a gigabyte was asked for at once.
func TestLengthsOfARecordAreBounded(t *testing.T) {
	for name, lengths := range map[string][2]uint32{"names": {128 << 10, 1}, "body": {1, 100 << 20}} {
		data := binary.LittleEndian.AppendUint32(nil, lengths[0])
		data = binary.LittleEndian.AppendUint32(data, lengths[1])
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, append(data, make([]byte, 1<<10)...), 0o600))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := itemset.ReadSpooled(path, 0)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, itemset.ErrCorruptSpool, name)
		require.ErrorContains(t, err, "a record of", name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
		require.ErrorIs(t, itemset.EachSpooled(path, func(int64, *itemset.SpooledItem) error { return nil }), itemset.ErrCorruptSpool, name)
	}
}

// FuzzFile reads arbitrary files: no panic, and no other error than the sentinel.
func FuzzFile(f *testing.F) {
	w, err := itemset.CreateSpool(f.TempDir())
	require.NoError(f, err)
	for i := range 3 {
		_, err := w.Add(newObject(i))
		require.NoError(f, err)
	}
	file, err := w.Finish()
	require.NoError(f, err)
	good, err := os.ReadFile(file.Path)
	require.NoError(f, err)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		err := itemset.EachSpooled(path, func(offset int64, _ *itemset.SpooledItem) error {
			if _, err := itemset.ReadSpooled(path, offset); err != nil {
				require.ErrorIs(t, err, itemset.ErrCorruptSpool)
			}
			return nil
		})
		if err != nil {
			require.ErrorIs(t, err, itemset.ErrCorruptSpool)
		}
	})
}
