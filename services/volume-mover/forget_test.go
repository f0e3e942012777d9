package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/command"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

func (b *bed) forget(ids ...string) outcome.Result {
	b.t.Helper()
	args := append([]string{"forget"}, b.common...)
	for _, id := range ids {
		args = append(args, "--snapshot", id)
	}
	var out, log bytes.Buffer
	code := command.Execute(b.t.Context(), args, &out, &log)
	result := lastResult(b.t, out.Bytes())
	require.Equal(b.t, result.Phase == outcome.Completed, code == command.ExitCompleted, log.String())
	return result
}

// TestForget checks that snapshots that are named go and others do not, and that what is not there is forgotten.
func TestForget(t *testing.T) {
	b := newBed(t)
	require.Equal(t, outcome.Completed, b.forget("00").Phase, "there is no repository")
	source := t.TempDir()
	mustWrite(t, filepath.Join(source, "file"), "content")
	first, second := b.upload(source, "web-0").SnapshotID, b.upload(source, "web-0").SnapshotID
	for range 2 {
		require.Equal(t, outcome.Completed, b.forget(first, "00").Phase)
	}
	_, err := b.open().LoadSnapshot(t.Context(), first)
	require.ErrorIs(t, err, repository.ErrNoSnapshot)
	require.Equal(t, outcome.Completed, b.restore(second, t.TempDir()).Phase, "it has the content that both had")

	mustWrite(t, b.passwordFile(), "another")
	result := b.forget(second)
	require.Equal(t, outcome.Failed, result.Phase)
	require.Equal(t, "repository of namespace app: wrong repository password", result.Message)
}

func (b *bed) passwordFile() string { return filepath.Join(filepath.Dir(b.bucket), "password") }
