package command

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/service/caller"
	"github.com/holdfast-io/holdfast/pkg/service/private"
)

const address = "127.0.0.1:7441"

func startLocalServer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	_, err := caller.CreateToken(dir)
	require.NoError(t, err)
	return dir
}

func noteAt(t *testing.T, home, address string) string {
	t.Helper()
	dir, err := DataDir(home, address)
	require.NoError(t, err)
	return dir
}

func TestServersAreFoundByTheirAddress(t *testing.T) {
	home := t.TempDir()
	require.Empty(t, noteAt(t, home, address))
	require.Empty(t, noteAt(t, "", address))
	require.ErrorIs(t, RecordServer("", "/x", nil), ErrNoHome)
	first, second := startLocalServer(t), startLocalServer(t)
	require.NoError(t, RecordServer(home, first, []string{address, "127.0.0.1:7442"}))
	require.NoError(t, RecordServer(home, second, []string{"127.0.0.1:9"}))
	require.Equal(t, first, noteAt(t, home, address))
	require.Equal(t, first, noteAt(t, home, "127.0.0.1:7442"))
	require.Equal(t, second, noteAt(t, home, "127.0.0.1:9"))
	require.Empty(t, noteAt(t, home, "localhost:7441"), "a name may lead elsewhere")

	require.NoError(t, RecordServer(home, first, []string{"127.0.0.1:8"}), "it was started again, on another port")
	require.Empty(t, noteAt(t, home, address))
	require.NoError(t, ForgetServer(home, first))
	require.Empty(t, noteAt(t, home, "127.0.0.1:8"))
	require.Equal(t, second, noteAt(t, home, "127.0.0.1:9"))
}

// TestNotesOfKilledServersGo: a server that was killed leaves its notes, one for each of its free
// ports.
func TestNotesOfKilledServersGo(t *testing.T) {
	home, killed := t.TempDir(), startLocalServer(t)
	require.NoError(t, RecordServer(home, killed, []string{address}))
	require.NoError(t, caller.RemoveToken(killed))
	require.NoError(t, RecordServer(home, startLocalServer(t), []string{"127.0.0.1:9"}))
	entries, err := os.ReadDir(notesDir(home))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// TestANoteOfSomebodyElseIsNotFollowed: it could have a token sent to its author.
func TestANoteOfSomebodyElseIsNotFollowed(t *testing.T) {
	home, dir := t.TempDir(), startLocalServer(t)
	require.NoError(t, RecordServer(home, dir, []string{address}))
	require.NoError(t, os.Chmod(notePath(home, address), 0o666)) //nolint:gosec // that is the point
	_, err := DataDir(home, address)
	require.ErrorIs(t, err, private.ErrNotOurs)
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(home, 1, -1))
		require.ErrorIs(t, RecordServer(home, dir, []string{address}), private.ErrNotOurs)
	}
}
