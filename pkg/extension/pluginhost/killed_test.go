package pluginhost_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
)

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
}

func TestPluginsDieWithAHostThatIsKilled(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	host := exec.CommandContext(t.Context(), self)
	host.Env = append(os.Environ(), "BE_A_HOST="+selfplugin.Directory(t, "vendor"), "TMPDIR="+shortDir(t))
	host.Stderr = os.Stderr
	stdout, err := host.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, host.Start())
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(objectAnnotations(t, action.FromJSON(line))["pid"])
	require.NoError(t, err)
	require.False(t, isProcessGone(pid))
	require.NoError(t, host.Process.Kill())
	require.Error(t, host.Wait())
	eventuallyGone(t, pid)
}

// shortDir is a directory with room for sockets in its path.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-") //nolint:usetesting // its directories have the test's name, which is too long
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func TestASocketDirectoryThatIsTooLongIsNamed(t *testing.T) {
	cfg := shortLimitsConfig(selfplugin.Directory(t, "vendor"))
	cfg.SocketDir = t.TempDir() + strings.Repeat("/long", 20)
	h, err := pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	require.Len(t, h.Failures(), 1)
	require.ErrorIs(t, h.Failures()[0], pluginhost.ErrStart)
	require.ErrorContains(t, h.Failures()[0], "directory for sockets "+cfg.SocketDir)
}

func TestNoSocketStaysBehind(t *testing.T) {
	t.Parallel()
	sockets := shortDir(t)
	cfg := shortLimitsConfig(selfplugin.Directory(t, "mute"))
	cfg.SocketDir, cfg.Limits.Start = sockets, 2*time.Second
	h, err := pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	require.Len(t, h.Failures(), 1)
	require.ErrorContains(t, h.Failures()[0], "timeout while waiting for plugin to start")
	cfg.Dir, cfg.Limits.Start = selfplugin.Directory(t, "vendor", "exit"), 0
	h, err = pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	s := openSession(t, h)
	require.Error(t, callers["DeleteItemAction"](t, s, "exit"))
	require.NoError(t, callers["DeleteItemAction"](t, s, "echo"))
	left, err := filepath.Glob(sockets + "/*")
	require.NoError(t, err)
	require.NotEmpty(t, left)
	s.Close()
	left, err = filepath.Glob(sockets + "/*")
	require.NoError(t, err)
	require.Empty(t, left)
}
