package service

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/service/private"
)

func TestWorkDirOfADeadProcessIsRemoved(t *testing.T) {
	root := t.TempDir()
	living, err := newWorkDir(root, "backup-runner", "backup-runner-living")
	require.NoError(t, err)
	dead, err := newWorkDir(root, "backup-runner", "backup-runner-dead")
	require.NoError(t, err)
	for _, dir := range []string{living.path, dead.path, filepath.Join(root, "backup-runner-of-mine"), filepath.Join(root, "other")} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "job"), 0o700))
	}
	require.NoError(t, dead.lock.Close(), "as the kernel does at a process's death")

	next, err := newWorkDir(root, "backup-runner", "backup-runner-next")
	require.NoError(t, err)
	require.NoDirExists(t, dead.path)
	require.DirExists(t, filepath.Join(living.path, "job"))
	require.DirExists(t, filepath.Join(root, "backup-runner-of-mine"), "not marked as ours")
	require.DirExists(t, filepath.Join(root, "other"))

	require.NoError(t, next.close())
	require.NoDirExists(t, next.path)
	require.NoError(t, living.close())
	require.NoError(t, living.close(), "closing twice is harmless")
}

// TestAWorkDirOfSomebodyElseIsRefused: the default is below /tmp, where any user can create it
// first and read what is spilled there: Secrets among it.
func TestAWorkDirOfSomebodyElseIsRefused(t *testing.T) {
	root := filepath.Join(t.TempDir(), "work")
	require.NoError(t, os.Mkdir(root, 0o700))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(root, 1, -1))
	} else {
		require.NoError(t, os.Chmod(root, 0o777)) //nolint:gosec // that is the point
	}
	_, err := newWorkDir(root, "backup-runner", "backup-runner-x")
	require.ErrorIs(t, err, private.ErrNotOurs)
}
