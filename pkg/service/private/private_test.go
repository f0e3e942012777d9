package private

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// newPrivateDir is a directory below one that everyone may write to, as the system's for temporary files is.
func newPrivateDir(t *testing.T) (shared, dir string) {
	t.Helper()
	shared = filepath.Join(t.TempDir(), "tmp")
	require.NoError(t, os.Mkdir(shared, 0o700))
	require.NoError(t, os.Chmod(shared, 0o777|fs.ModeSticky)) //nolint:gosec // that is the point
	return shared, filepath.Join(shared, "holdfast", "queue-scheduler")
}

// TestADirectoryOfSomebodyElseIsRefused: a user who makes /tmp/holdfast first owns what services
// put below it, and can read and replace it.
func TestADirectoryOfSomebodyElseIsRefused(t *testing.T) {
	_, dir := newPrivateDir(t)
	require.NoError(t, MakeDir(dir))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())

	stranger := os.Geteuid() + 1
	if os.Geteuid() == 0 { // what root owns is everyone's friend, so let a stranger own it
		require.NoError(t, os.Chown(dir, stranger, -1))
		require.ErrorIs(t, MakeDir(dir), ErrNotOurs)
		require.NoError(t, os.Chown(dir, 0, -1))
		require.NoError(t, os.Chown(filepath.Dir(dir), stranger, -1))
		err = MakeDir(dir)
		require.ErrorIs(t, err, ErrNotOurs, "the stranger owns the directory above it")
		require.ErrorContains(t, err, filepath.Dir(dir)+":")
		return
	}
	require.ErrorIs(t, checkPath(dir, stranger), ErrNotOurs)
}

// TestALinkOfSomebodyElseIsRefused: a link in /tmp leads the service into a directory of the
// service's own user.
func TestALinkOfSomebodyElseIsRefused(t *testing.T) {
	shared, _ := newPrivateDir(t)
	target := filepath.Join(t.TempDir(), "mine")
	require.NoError(t, os.Mkdir(target, 0o700))
	link := filepath.Join(shared, "holdfast")
	require.NoError(t, os.Symlink(target, link))
	require.NoError(t, MakeDir(link), "a link of our own")
	if os.Geteuid() == 0 {
		require.NoError(t, os.Lchown(link, 1, -1))
		require.ErrorIs(t, MakeDir(link), ErrNotOurs)
	} else {
		require.ErrorIs(t, checkPath(link, os.Geteuid()+1), ErrNotOurs)
	}
}

// TestADirectoryThatEveryoneMayWriteToIsRefused: others could replace what is in it. One that root
// made so is a volume of a Pod.
func TestADirectoryThatEveryoneMayWriteToIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // that is the point
	if os.Geteuid() != 0 {
		require.ErrorIs(t, MakeDir(dir), ErrNotOurs)
		return
	}
	require.NoError(t, MakeDir(dir))
	require.NoError(t, os.Chown(dir, 1, -1))
	require.ErrorIs(t, checkPath(dir, 1), ErrNotOurs)
}

func TestFilesAreForTheirOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	_, err := ReadFile(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("of somebody who came first, and longer"), 0o666)) //nolint:gosec // that is the point
	require.NoError(t, os.Chmod(path, 0o666))                                                       //nolint:gosec // that is the point
	_, err = ReadFile(path)
	require.ErrorIs(t, err, ErrNotOurs, "others can read it")
	require.NoError(t, WriteFile(path, []byte("secret")))
	data, err := ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "secret", string(data))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	_, err = readFile(path, os.Geteuid()+1)
	require.ErrorIs(t, err, ErrNotOurs, "somebody else owns it")
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing temporary stays")

	link := path + "-link"
	require.NoError(t, os.Symlink(path, link))
	_, err = ReadFile(link)
	require.ErrorIs(t, err, ErrNotOurs)
	pipe := path + "-pipe"
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err = ReadFile(pipe)
	require.ErrorIs(t, err, ErrNotOurs)
	require.NoError(t, os.WriteFile(path, make([]byte, maxFile+1), 0o600))
	_, err = ReadFile(path)
	require.ErrorContains(t, err, "larger")
}
