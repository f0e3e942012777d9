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
	require.NotNil(t, new(App).itemActions(open(), prometheus.NewRegistry()))
}
