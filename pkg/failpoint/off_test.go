//go:build !failpoint

package failpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
)

func TestReleaseBuildsHaveNoPoints(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("FAILPOINT_DIR", dir)
	path := filepath.Join(dir, "a.point")
	require.NoError(t, os.WriteFile(path, []byte("panic"), 0o600))
	require.NotPanics(t, func() { failpoint.Hit("a/point") })
	require.FileExists(t, path)
	require.False(t, failpoint.Enabled)
}
