package product_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standIn behaves like the command line as far as this package relies on it.
const standIn = `#!/bin/sh
shift 4 # --kubeconfig F --namespace N
case "$1 $2" in
"up --data-dir")
  trap 'echo stopping; exit 0' TERM
  echo "holdfast is ready"
  while :; do sleep 0.05; done ;;
"backup create") echo "waiting" >&2; echo "created $3"; exit 2 ;;
"backup get") echo '{"status":{"phase":"Completed","progress":{"totalItems":7,"itemsBackedUp":6}}}' ;;
"backup logs") trap 'exit 130' INT; echo started; while :; do sleep 0.05; done ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
`

func newCLI(t *testing.T, script string) *product.CLI {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast")
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return &product.CLI{Binary: path, Kubeconfig: "kubeconfig", Namespace: "velero"}
}

func TestExitCodesAndStatus(t *testing.T) {
	cli := newCLI(t, standIn)
	var output bytes.Buffer
	cli.Output = &output
	_, err := cli.Run(t.Context(), "backup", "create", "b")
	var exit *product.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 2, exit.Code)
	require.Contains(t, exit.Error(), "waiting")
	require.Contains(t, output.String(), "created b")

	status, err := cli.Status(t.Context(), "backup", "b")
	require.NoError(t, err)
	require.Equal(t, "Completed", status.Phase)
	require.Equal(t, 6, status.Progress.ItemsBackedUp)
	require.NotContains(t, output.String(), "Completed", "reading the status prints nothing")
}

func TestRunPassesTheInterruptOn(t *testing.T) {
	cli := newCLI(t, standIn)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := cli.Run(ctx, "backup", "logs", "b")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestUpIsReadyAndStops(t *testing.T) {
	server, err := newCLI(t, standIn).Up(t.Context(), t.TempDir())
	require.NoError(t, err)
	server.Shutdown()
	require.NoError(t, server.Err())

	_, err = newCLI(t, "#!/bin/sh\necho cannot listen\nexit 1\n").Up(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "cannot listen", "the error shows the end of the log")
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "empty"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "file"), nil, 0o600))
	files, err := product.Files(dir)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join("a", "file")}, files)
	files, err = product.Files(filepath.Join(dir, "absent"))
	require.NoError(t, err)
	require.Empty(t, files)
}
