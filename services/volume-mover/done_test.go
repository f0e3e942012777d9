package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// TestTheDoneFileComesLast checks what a restored Pod waits for, and that the rest of the volume is as it was.
func TestTheDoneFileComesLast(t *testing.T) {
	b, volume, target := newBed(t), t.TempDir(), t.TempDir()
	mustWrite(t, filepath.Join(volume, "a/file"), "hello")
	mustWrite(t, filepath.Join(volume, ".velero/old-uid"), "") // of an earlier restore
	up := b.upload(volume, "web-0")
	down := b.restore(up.SnapshotID, target, "--done-file", "restore-uid")
	require.Equal(t, outcome.Completed, down.Phase, down.Message)
	marks, err := os.ReadDir(filepath.Join(target, ".velero"))
	require.NoError(t, err)
	require.Len(t, marks, 1)
	for path, mode := range map[string]os.FileMode{".velero": os.ModeDir | 0o777, ".velero/restore-uid": 0o644} {
		info, err := os.Stat(filepath.Join(target, path))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), path)
	}
	want, found := describe(t, volume), describe(t, target)
	for _, path := range []string{".velero", ".velero/old-uid", ".velero/restore-uid"} {
		delete(want, path)
		delete(found, path)
	}
	require.Equal(t, want, found)
}

func TestThereIsNoDoneFileWithoutTheData(t *testing.T) {
	b, volume, target := newBed(t), t.TempDir(), t.TempDir()
	mustWrite(t, filepath.Join(volume, "file"), "hello")
	up := b.upload(volume, "web-0")
	mustWrite(t, filepath.Join(target, "other"), "")
	down := b.restore(up.SnapshotID, target, "--done-file", "restore-uid")
	require.Equal(t, outcome.Failed, down.Phase)
	require.NoDirExists(t, filepath.Join(target, ".velero"))
}

// TestTheResultIsLeftForThePod checks the termination log of a mover Pod.
func TestTheResultIsLeftForThePod(t *testing.T) {
	b, volume := newBed(t), t.TempDir()
	mustWrite(t, filepath.Join(volume, "file"), "hello")
	path := filepath.Join(t.TempDir(), "termination-log")
	mustWrite(t, path, "what was there is replaced, however long it is: 0123456789012345678901234567890123456789012345678901234567890123456789")
	read := func() (left outcome.Result) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &left))
		return left
	}
	up := b.upload(volume, "web-0", "--result-file", path)
	require.Equal(t, up, read())
	b.restore("none", t.TempDir(), "--result-file", path)
	require.Equal(t, outcome.Failed, read().Phase)
	require.False(t, read().Unopened)
	mustWrite(t, filepath.Join(filepath.Dir(b.bucket), "password"), "wrong")
	b.restore(up.SnapshotID, t.TempDir(), "--result-file", path)
	require.True(t, read().Unopened)
	require.Contains(t, read().Message, "password")
}
