package restore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAnEntryWithoutItsNameIsRemoved checks that nothing is left beside an entry whose name was taken meanwhile.
func TestAnEntryWithoutItsNameIsRemoved(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, root.Close()) }()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "name", "inside"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "place"), nil, 0o600))
	w := &snapshotWriter{root: root}
	require.Error(t, w.finishEntry("place", "name"))
	require.NoFileExists(t, filepath.Join(dir, "place"))
	require.DirExists(t, filepath.Join(dir, "name", "inside"))
}
