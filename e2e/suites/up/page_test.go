package up

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// followPage types the commands of docs/bring-back.md, and looks for what the page says they print: each line of it in
// the output of the commands before it, which may print more.
func followPage(t *testing.T, cli *product.CLI) {
	t.Helper()
	log, err := os.ReadFile(startUp(t, cli, t.TempDir()).LogPath())
	require.NoError(t, err)
	kubectl, err := testbed.Binary("kubectl")
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "bring-back.md"))
	require.NoError(t, err)
	// The server of a reader has the default addresses, which the page does not name.
	prelude := fmt.Sprintf(`holdfast() { case "$2" in diff) set -- "$@" --manifest-address %s ;; plan) set -- "$@" --restore-address %s ;; esac; command holdfast "$@"; }`+"\n",
		servedAddress(t, log, "manifest-indexer"), servedAddress(t, log, "restore-runner"))
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
}

// servedAddress finds in the server's log where a service answers.
func servedAddress(t *testing.T, log []byte, service string) string {
	t.Helper()
	found := regexp.MustCompile("readiness changed.*" + service + `.* grpc=(\S+)`).FindSubmatch(log)
	require.NotNil(t, found, "%s", log)
	return string(found[1])
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
