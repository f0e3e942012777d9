package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/command"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// makeSlowVolume makes a volume whose upload takes long because of one file of zeros, which takes no room.
func makeSlowVolume(t *testing.T) (volume, slow string) {
	volume = t.TempDir()
	data := make([]byte, 10000)
	for i := range 200 {
		_, _ = rand.Read(data)
		mustWrite(t, filepath.Join(volume, fmt.Sprintf("%d/%d", i%10, i)), string(data))
	}
	slow = filepath.Join(volume, "slow")
	mustWrite(t, slow, "")
	require.NoError(t, os.Truncate(slow, 1<<40))
	return volume, slow
}

// awaitMore waits for more blobs than there were: directories are written with the policy, and then by checkpoints.
func awaitMore(t *testing.T, b *bed, prefix string, than int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.blobs(prefix)) > than }, 2*time.Minute, 20*time.Millisecond)
}

// TestKill checks that after a SIGKILL an upload goes on from the last checkpoint.
func TestKill(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	volume, slow := makeSlowVolume(t)
	mover, _ := b.start("upload", "--source", volume, "--pod", "web-0", "--volume", "data", "--claim-uid", "1", "--create-repository", "--checkpoint-interval", "1s", "--parallel", "16")
	awaitMore(t, b, "udmrepo", 0)
	for range 3 { // the first checkpoint may come before the first file has ended
		awaitMore(t, b, "q", len(b.blobs("q")))
	}
	require.NoError(t, mover.Process.Kill())
	_ = mover.Wait()
	require.NoError(t, os.Remove(slow))

	up := b.upload(volume, "web-1")
	require.Equal(t, outcome.Completed, up.Phase, up.Message)
	require.EqualValues(t, 200*10000, up.Bytes)
	require.Less(t, up.IncrementalBytes, up.Bytes)
	target := t.TempDir()
	require.Equal(t, outcome.Completed, b.restore(up.SnapshotID, target).Phase)
	require.Equal(t, describe(t, volume), describe(t, target))
	ids, err := b.open().FindManifests(t.Context(), map[string]string{"type": "snapshot"})
	require.NoError(t, err)
	require.Len(t, ids, 1, "the checkpoints are gone")
}

// TestCancel checks that SIGTERM ends an upload with a result that says so, and that the next one goes on.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	volume, slow := makeSlowVolume(t)
	mover, out := b.start("upload", "--source", volume, "--pod", "web-0", "--volume", "data", "--claim-uid", "1", "--create-repository", "--parallel", "16")
	awaitMore(t, b, "udmrepo", 0)
	require.NoError(t, mover.Process.Signal(syscall.SIGTERM))
	err := mover.Wait()
	require.Equal(t, command.ExitCanceled, mover.ProcessState.ExitCode(), "%v: %s", err, out)
	canceled := lastResult(t, out.Bytes())
	require.Equal(t, outcome.Canceled, canceled.Phase)
	require.Contains(t, canceled.Message, "got a signal to stop")
	require.Empty(t, canceled.SnapshotID)
	require.NoError(t, os.Remove(slow))

	up := b.upload(volume, "web-0")
	require.Equal(t, outcome.Completed, up.Phase, up.Message)
	require.Equal(t, up.Bytes, up.IncrementalBytes+canceled.Bytes)
}

// TestCanceledBefore checks that a mover which gets a signal to stop before it has begun says that it was canceled.
func TestCanceledBefore(t *testing.T) {
	b, volume := newBed(t), t.TempDir()
	b.upload(volume, "web-0")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	result := b.run(ctx, "upload", "--source", volume, "--pod", "web-0", "--volume", "data")
	require.Equal(t, outcome.Canceled, result.Phase)
	require.NotEmpty(t, result.Message)
}

// TestNobodyReads checks that the exit code is that of the transfer where its result cannot be written.
func TestNobodyReads(t *testing.T) {
	b := newBed(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, errors.Join(read.Close(), write.Close()))
	var log bytes.Buffer
	args := []string{"move", "upload", "--source", t.TempDir(), "--pod", "web-0", "--volume", "data", "--create-repository"}
	require.Equal(t, command.ExitCompleted, command.Execute(t.Context(), append(args, b.common...), write, &log))
	require.Contains(t, log.String(), "the result cannot be written")
}
