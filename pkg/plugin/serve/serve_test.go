package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/plugintest"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// TestMain makes a plugin of the test's binary when a server starts it.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("TEST_MISTAKE") != "":
		exitWith(serve.Run(&plugin.Registry{}))
	case os.Getenv("TEST_BY_HAND") != "" || os.Getenv("VELERO_PLUGIN") != "":
		exitWith(serve.Run((&plugin.Registry{}).BackupItemAction("a.io/x", []string{"*"}, func(env plugin.Env) (plugin.BackupItemAction, error) {
			return logging{Env: env}, nil
		})))
	}
	os.Exit(m.Run())
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(0)
}

type logging struct {
	plugin.Everything
	plugin.Env
}

func (l logging) Execute(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
	l.Log.Debug("seen", "item", in.Item.GetName())
	l.Log.WithGroup("g").Warn("odd", "level", 1, "msg", "kept")
	fmt.Println("a stray line on standard output")
	in.Item.SetAnnotations(map[string]string{"features": fmt.Sprint(l.Features)})
	return plugin.NewBackupOutput(in.Item), nil
}

func executeAction(t *testing.T, process *plugintest.Process) *plugin.BackupOutput {
	t.Helper()
	out, err := process.BackupItemAction("a.io/x").Execute(t.Context(), &plugin.BackupInput{
		Item: plugintest.Object(t, `{"kind":"Pod","metadata":{"name":"p"}}`), Backup: plugintest.Job(t, "b"),
	})
	require.NoError(t, err)
	return out
}

func TestProcessServesWhatAServerAsks(t *testing.T) {
	// A Velero server passes its whole command line, with flags of every type.
	process := plugintest.Exec(t, os.Args[0], "--log-level", "debug", "--features=EnableCSI, Other,", "--unknown", "--client-qps=100")
	require.Equal(t, "[EnableCSI Other]", executeAction(t, process).Item.GetAnnotations()["features"])
	listed, err := velero.NewPluginListerClient(process.Conn()).ListPlugins(t.Context(), &velero.Empty{})
	require.NoError(t, err)
	require.Len(t, listed.GetPlugins(), 1)
	require.Equal(t, os.Args[0], listed.GetPlugins()[0].GetCommand())
	require.Equal(t, "BackupItemAction", listed.GetPlugins()[0].GetKind())
	require.Equal(t, "a.io/x", listed.GetPlugins()[0].GetName())
}

func TestLogLinesAreAsServersReadThem(t *testing.T) {
	for level, want := range map[string][]string{"debug": {"seen", "odd"}, "warning": {"odd"}, "error": nil} {
		var messages []string
		for _, line := range runAndReadLog(t, level) {
			messages = append(messages, line["@message"].(string))
			require.Equal(t, "plugin", line["@logSourceSetBy"])
			require.Regexp(t, `^serve_test\.go:\d+$`, line["logSource"])
			require.Equal(t, "a.io/x", line["plugin"])
			require.NotContains(t, line, "time")
			switch line["@message"] {
			case "seen":
				require.Equal(t, "debug", line["@level"])
				require.Equal(t, "p", line["item"])
			case "odd":
				require.Equal(t, "warn", line["@level"])
				require.Equal(t, map[string]any{"level": 1.0, "msg": "kept"}, line["g"])
			}
		}
		require.Equal(t, want, messages, level)
	}
}

// runAndReadLog runs the action in a process and returns what the process wrote to its standard error.
func runAndReadLog(t *testing.T, level string) []map[string]any {
	t.Helper()
	var stderr bytes.Buffer
	t.Run(level, func(t *testing.T) { executeAction(t, plugintest.ExecTo(t, &stderr, os.Args[0], "--log-level", level)) })
	var lines []map[string]any
	for text := range bytes.Lines(stderr.Bytes()) {
		line := map[string]any{}
		require.NoError(t, json.Unmarshal(text, &line), string(text))
		lines = append(lines, line)
	}
	return lines
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	for env, want := range map[string]struct {
		code int
		text string
	}{"TEST_MISTAKE=1": {3, "plugins: no plugin is registered"}, "TEST_BY_HAND=1": {1, "This binary is a plugin"}} {
		command := exec.CommandContext(t.Context(), os.Args[0])
		command.Env = append(os.Environ(), env)
		out, err := command.CombinedOutput()
		var exited *exec.ExitError
		require.ErrorAs(t, err, &exited)
		require.Equal(t, want.code, exited.ExitCode())
		require.Contains(t, string(out), want.text)
	}
}
