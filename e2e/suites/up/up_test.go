package up

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const patience = testbed.Patience

// TestUp shares one control plane; each part uses a namespace of its own, as two installations on
// one cluster would.
func TestUp(t *testing.T) {
	cluster := testbed.StartT(t)
	c, err := client.New(cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	cli := func(t *testing.T, namespace string) *product.CLI {
		t.Helper()
		return &product.CLI{Binary: binary, Kubeconfig: cluster.Kubeconfig(), Namespace: namespace, Output: t.Output()}
	}
	t.Run("sets up, stops and starts again", func(t *testing.T) { startTwice(t, c, cli(t, "twice")) })
	t.Run("refuses a data directory in use", func(t *testing.T) { refuseUsedDirectory(t, cli(t, "used")) })
	t.Run("brings back what a page of the documentation says", func(t *testing.T) { followPage(t, c, cli(t, "page")) })
	t.Run("says what is in the way of a port", func(t *testing.T) { nameThePort(t, cli(t, "port")) })
}

func startUp(t *testing.T, cli *product.CLI, dir string, args ...string) *product.Server {
	t.Helper()
	server, err := cli.Up(t.Context(), dir, append([]string{"--free-ports"}, args...)...)
	require.NoError(t, err)
	t.Cleanup(server.Shutdown)
	return server
}

func startTwice(t *testing.T, c client.Client, cli *product.CLI) {
	t.Helper()
	dir := t.TempDir()
	server := startUp(t, cli, dir, "--runners", "2")
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Name: cli.Namespace}, &corev1.Namespace{}))
	location := &velerov1.BackupStorageLocation{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: cli.Namespace, Name: "default"}, location))
	require.Equal(t, velerov1.LocationPhaseAvailable, location.Status.Phase)
	require.Equal(t, filepath.Join(server.DataDir, "objects"), location.Spec.Config["path"])
	out, err := cli.Run(t.Context(), "version")
	require.NoError(t, err)
	require.Contains(t, out, "Server: v1.18.")

	server.Shutdown()
	require.NoError(t, server.Err(), "SIGTERM ends it with exit code 0")
	log, err := os.ReadFile(server.LogPath())
	require.NoError(t, err)
	require.Contains(t, string(log), `msg="Services stopped"`)
	require.NotContains(t, string(log), "panic")

	again := startUp(t, cli, dir)
	again.Shutdown()
	require.NoError(t, again.Err())
}

// requireRefused runs `holdfast up`, which has to end by itself, and returns what it said.
func requireRefused(t *testing.T, cli *product.CLI, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := cli.Run(ctx, append([]string{"up"}, args...)...)
	var exit *product.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.Code)
	return exit.Output
}

func refuseUsedDirectory(t *testing.T, cli *product.CLI) {
	t.Helper()
	server := startUp(t, cli, t.TempDir())
	require.Contains(t, requireRefused(t, cli, "--free-ports", "--data-dir", server.DataDir), "in use")
}

// nameThePort runs up where another program has one of the ports.
func nameThePort(t *testing.T, cli *product.CLI) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:8446")
	if err == nil { // else another process has it, which serves as well
		defer func() { require.NoError(t, listener.Close()) }()
	}
	out := requireRefused(t, cli, "--data-dir", t.TempDir())
	require.Contains(t, out, "address already in use")
}
