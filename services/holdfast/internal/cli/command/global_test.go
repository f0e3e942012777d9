package command_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

func TestServerNamespace(t *testing.T) {
	home := t.TempDir()
	config := filepath.Join(home, ".config", "velero", "config.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(config), 0o700))
	write := func(content string) { require.NoError(t, os.WriteFile(config, []byte(content), 0o600)) }
	variable := ""
	g := &command.Global{Home: home, Getenv: func(name string) string {
		require.Equal(t, "VELERO_NAMESPACE", name)
		return variable
	}}
	expect := func(want string) {
		t.Helper()
		have, err := g.ServerNamespace()
		require.NoError(t, err)
		require.Equal(t, want, have)
	}
	expect("velero")
	variable = "from-variable"
	expect("from-variable")
	write(`{"namespace":"from-file","features":"EnableCSI"}`)
	expect("from-file")
	g.Namespace = "from-flag"
	expect("from-flag")

	g.Namespace = "Not/Valid"
	_, err := g.ServerNamespace()
	require.ErrorContains(t, err, "--namespace")
	g.Namespace = ""
	write(`{`)
	_, err = g.ServerNamespace()
	require.ErrorContains(t, err, "config.json")
}

func TestExitCode(t *testing.T) {
	require.Equal(t, 0, command.ExitCode(nil))
	require.Equal(t, 1, command.ExitCode(errors.New("any")))
	partial := &command.ExitError{Code: command.CodePartial, Err: errors.New("partial")}
	require.Equal(t, 2, command.ExitCode(fmt.Errorf("wrapped: %w", partial)))
}
