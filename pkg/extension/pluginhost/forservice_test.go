package pluginhost_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/service"
)

func newBase(dir string, out *bytes.Buffer) service.Base {
	o := service.Defaults("deletion", service.Ports{})
	o.PluginDir = dir
	return service.Base{Options: o, Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(out, nil))}
}

func TestWithoutADirectoryThereIsNothing(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h, err := pluginhost.NewForService(t.Context(), newBase("", &out), service.NewConfig[pluginhost.Flags](), nil)
	require.NoError(t, err)
	s := h.Open(t.Context(), pluginhost.ServiceLog(newBase("", &out), func(joblog.Entry) {}))
	defer s.Close()
	require.Empty(t, s.BackupItems())
	require.Empty(t, s.DeleteItems())
	require.Empty(t, out.String())
}

func TestWhatCannotBeUsedIsAWarningOfTheService(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken"), []byte("\x7fELF nonsense"), 0o700))
	h, err := pluginhost.NewForService(t.Context(), newBase(dir, &out), service.NewConfig[pluginhost.Flags](), nil)
	require.NoError(t, err)
	require.Empty(t, h.Plugins())
	require.Contains(t, out.String(), `level=WARN msg="Failed to use plugins of a binary; running without them" path=`+dir+"/broken")
	_, err = pluginhost.NewForService(t.Context(), newBase(dir, &out), pluginhost.Flags{CallTimeout: 1}, nil)
	require.ErrorContains(t, err, "--plugin-call-timeout")
}

func TestTheLevelOfTheServiceIsThatOfItsPlugins(t *testing.T) {
	t.Parallel()
	b := newBase("", &bytes.Buffer{})
	b.Options.LogLevel = "error"
	var got []joblog.Entry
	log := pluginhost.ServiceLog(b, func(e joblog.Entry) { got = append(got, e) })
	log.Info("not wanted")
	log.Warn("counted")
	require.Len(t, got, 1)
	require.Equal(t, joblog.Warning, got[0].Level)
}
