package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/command"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// TestMaintain checks the command, in each mode and as what a mover Pod runs.
func TestMaintain(t *testing.T) {
	b, volume := newBed(t), t.TempDir()
	maintain := func(args ...string) (int, outcome.Result) {
		var out, log bytes.Buffer
		code := command.Execute(t.Context(), append(append([]string{"maintain"}, b.common...), args...), &out, &log)
		if code == command.ExitUsage {
			require.Contains(t, log.String(), "maintain.mode")
			return code, outcome.Result{}
		}
		return code, lastResult(t, out.Bytes())
	}
	code, result := maintain()
	require.Equal(t, command.ExitFailed, code)
	require.True(t, result.Unopened, "there is no repository, and none is made")
	for range 2 {
		code, result = maintain("--mode", "create")
		require.Equal(t, command.ExitCompleted, code)
		require.Equal(t, outcome.Result{Phase: outcome.Completed}, result)
	}
	mustWrite(t, filepath.Join(volume, "file"), "content")
	id := b.upload(volume, "web-0").SnapshotID
	for _, args := range [][]string{{"--mode", "quick"}, {"--mode", "full"}, {"--full-interval", "0s"}, {}} {
		code, result = maintain(args...)
		require.Equal(t, command.ExitCompleted, code, args)
		require.Equal(t, outcome.Result{Phase: outcome.Completed}, result, args)
	}
	require.Equal(t, outcome.Completed, b.restore(id, t.TempDir()).Phase)
	code, _ = maintain("--mode", "fast")
	require.Equal(t, command.ExitUsage, code)
}
