package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
	"github.com/holdfast-io/holdfast/services/deletion/internal/snapshots"
)

// What a binary that cannot be asked would have registered is not known: no backup may go without
// it.
func TestABinaryThatDoesNotStartIsNotOverlooked(t *testing.T) {
	dir := t.TempDir()
	open := func() *pluginhost.Host {
		host, err := pluginhost.New(t.Context(), pluginhost.Config{Dir: dir, Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}})
		require.NoError(t, err)
		return host
	}
	require.Empty(t, unknownBinaries(open()))
	require.Nil(t, new(App).itemActions(open(), prometheus.NewRegistry()), "without plugins nothing is done about them")
	path := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nexit 3\n"), 0o700))
	found := unknownBinaries(open())
	require.Len(t, found, 1)
	require.ErrorContains(t, found[0], "plugin binary "+path+": ")
	a := &App{config: Config{Concurrency: 4}}
	require.Equal(t, 3, a.itemActions(open(), prometheus.NewRegistry()).(*itemaction.Runner).Plugins.Deletions, "one place is left to others")
}

// The deletions of one plugin leave one place to others.
func TestAPluginThatHangsLeavesOnePlace(t *testing.T) {
	require.Equal(t, []int{1, 1, 3}, []int{newPluginLimit(1).Deletions, newPluginLimit(2).Deletions, newPluginLimit(4).Deletions})
	a := &App{config: Config{Concurrency: 4}}
	require.Equal(t, 3, a.snapshotRemover(nil).(*snapshots.Remover).Plugins.Deletions)
}
