package plugin_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an author does first: copy the example, say where the SDK is, run its tests.
func TestTheExamplePassesItsTestsOutsideTheRepository(t *testing.T) {
	sdk, err := filepath.Abs(".")
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "mine")
	require.NoError(t, os.CopyFS(copied, os.DirFS("example")))
	run := func(args ...string) {
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = copied
		// As binaries are built here, so that little is compiled anew.
		command.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-trimpath -gcflags=all=-dwarf=false")
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("mod", "edit", "-replace=github.com/holdfast-io/holdfast/pkg/plugin="+sdk)
	// Without vet, which would look at every dependency; lint checks the example itself.
	run("test", "-vet=off", ".")
}
