package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	sdk "github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
)

// TestMain is a plugin when it is started as one.
func TestMain(m *testing.M) {
	time.Local = time.UTC // times are shown in the user's zone
	if os.Getenv("VELERO_PLUGIN") == "" {
		os.Exit(m.Run())
	}
	registry := (&sdk.Registry{}).
		RestoreItemAction("example.io/b", []string{"pods"}, func(sdk.Env) (sdk.RestoreItemAction, error) { return nil, os.ErrInvalid }).
		BackupItemAction("example.io/c", []string{"*"}, func(sdk.Env) (sdk.BackupItemAction, error) { return nil, os.ErrInvalid }).
		BackupItemAction("example.io/a", []string{"*"}, func(sdk.Env) (sdk.BackupItemAction, error) { return nil, os.ErrInvalid })
	if err := serve.Run(registry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newPluginDir holds one plugin, and a file that is none.
func newPluginDir(t *testing.T) string {
	t.Helper()
	dir := selfplugin.Directory(t, "example")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken"), []byte("\x7fELF nonsense"), 0o700))
	return dir
}

func TestGetListsWhatBinariesServe(t *testing.T) {
	dir := newPluginDir(t)
	result := clitest.New(t).Run(t.Context(), "", "plugin", "get", "--plugin-dir", dir)
	require.Equal(t, 0, result.Code, result.Err)
	var got [][]string
	for line := range strings.Lines(result.Out) {
		got = append(got, strings.Fields(line)[:3])
	}
	require.Equal(t, [][]string{
		{"NAME", "KIND", "COMMAND"},
		{"example.io/a", "BackupItemAction", dir + "/example"},
		{"example.io/c", "BackupItemAction", dir + "/example"},
		{"example.io/b", "RestoreItemActionV2", dir + "/example"},
	}, got)
	require.Contains(t, result.Err, "Not used: "+dir+"/broken: ")
}

func TestGetPrintsJSONAndYAML(t *testing.T) {
	dir := newPluginDir(t)
	c := clitest.New(t)
	for format, decode := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": func(b []byte, v any) error { return yaml.Unmarshal(b, v) }} {
		result := c.Run(t.Context(), "", "plugin", "get", "--plugin-dir", dir, "-o", format)
		require.Equal(t, 0, result.Code, result.Err)
		var got cli.PluginList
		require.NoError(t, decode([]byte(result.Out), &got))
		require.Len(t, got.Plugins, 3)
		require.Equal(t, "example.io/b", got.Plugins[2].Name)
		require.Equal(t, []string{"pods"}, got.Plugins[2].Touches)
		require.Len(t, got.Failures, 1)
		require.Equal(t, dir+"/broken", got.Failures[0].Command)
	}
}

func TestGetNamesTheFlag(t *testing.T) {
	c := clitest.New(t)
	result := c.Run(t.Context(), "", "plugin", "get")
	require.Equal(t, 1, result.Code)
	require.Contains(t, result.Err, "--plugin-dir: name the directory")
	result = c.Run(t.Context(), "", "plugin", "get", "--plugin-dir", t.TempDir()+"/absent")
	require.Equal(t, 1, result.Code)
	require.Contains(t, result.Err, "--plugin-dir: stat")
	result = c.Run(t.Context(), "", "plugin", "get", "--plugin-dir", t.TempDir())
	require.Equal(t, 0, result.Code, result.Err)
	require.Equal(t, "No plugins.\n", result.Out)
}
