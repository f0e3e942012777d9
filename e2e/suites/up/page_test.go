package up

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// followPage types the commands of docs/bring-back.md, and looks for what the page says they print: each line of it in
// the output of the commands before it, which may print more. Then it looks into a backup of the page in Velero's layout.
func followPage(t *testing.T, c client.Client, cli *product.CLI) {
	t.Helper()
	server := startUp(t, cli, t.TempDir())
	indexer, runner := servedAddress(t, server.LogPath(), "manifest-indexer"), servedAddress(t, server.LogPath(), "restore-runner")
	kubectl, err := testbed.Binary("kubectl")
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "bring-back.md"))
	require.NoError(t, err)
	// The server of a reader has the default addresses, which the page does not name.
	prelude := fmt.Sprintf(`holdfast() { case "$2" in diff) set -- "$@" --manifest-address %s ;; plan) set -- "$@" --restore-address %s ;; esac; command holdfast "$@"; }`+"\n",
		indexer, runner)
	output := ""
	blocks := strings.Split(string(page), "```")
	for i := 1; i < len(blocks); i += 2 {
		text, isCommand := strings.CutPrefix(blocks[i], "sh\n")
		if isCommand {
			output = runBlock(t, cli, kubectl, prelude+text)
			continue
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				require.Contains(t, output, line)
			}
		}
	}
	forgeVelerosBackup(t, filepath.Join(server.DataDir, "objects", "backups", "backups"), "yesterday", "foreign")
	lookIntoForeign(t, c, cli, indexer, runner)
}

// servedAddress finds in the server's log where a service answers. The line follows the readiness that up waits for, at
// the next look of the service at its own conditions.
func servedAddress(t *testing.T, path, service string) string {
	t.Helper()
	line := regexp.MustCompile("Readiness changed.*" + service + `.* grpc=(\S+)`)
	address := ""
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		log, err := os.ReadFile(path)
		require.NoError(c, err)
		found := line.FindSubmatch(log)
		require.NotNil(c, found, "%s", log)
		address = string(found[1])
	}, patience, 50*time.Millisecond)
	return address
}

// runBlock runs commands until one fails. Exit code 1 is one of `backup diff`, where something differs.
func runBlock(t *testing.T, cli *product.CLI, kubectl, text string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", text)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cli.Kubeconfig, "VELERO_NAMESPACE="+cli.Namespace,
		"PATH="+filepath.Dir(cli.Binary)+":"+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(text, "backup diff") {
		require.NoError(t, err, "%s\n%s", text, out)
	}
	return string(out)
}
