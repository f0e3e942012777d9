package scenario

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// patience bounds every wait of a scenario: generous, since the machine may be busy with other
// tests.
const patience = testbed.Patience

// world is a cluster with the product on it and one bucket.
type world struct {
	cluster   *testbed.Cluster
	cli       *product.CLI
	location  string                                                // name of the BackupStorageLocation
	manifests string                                                // address of manifest-indexer; empty where it is not known
	keys      func(context.Context) ([]string, error)               // everything in the bucket
	read      func(ctx context.Context, key string) ([]byte, error) // one object of the bucket
}

func (w *world) restConfig() *rest.Config { return w.cluster.RestConfig() }

// newCLI returns the command line against a cluster; its output goes to the test's log.
func newCLI(t *testing.T, cluster *testbed.Cluster) *product.CLI {
	t.Helper()
	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	return &product.CLI{Binary: binary, Kubeconfig: cluster.Kubeconfig(), Namespace: "velero", Output: t.Output()}
}

// wholeLoop backs the sample estate up, destroys it, restores it, compares every object and deletes
// the backup.
func wholeLoop(t *testing.T, w *world) {
	t.Helper()
	ctx := t.Context()
	_, err := seed.Apply(ctx, w.restConfig(), seed.Options{})
	require.NoError(t, err)
	namespaces := seed.Options{}.Namespaces()
	scope := compare.Scope{Namespaces: namespaces, Selector: seed.Selector()}

	_, err = w.cli.Run(ctx, "backup", "create", "loop", "--include-namespaces", strings.Join(namespaces, ","), "--include-cluster-resources",
		"--storage-location", w.location, "--wait")
	require.NoError(t, err)
	backup := requireCompleted(t, w, "backup", "loop")
	require.Equal(t, backup.Progress.TotalItems, backup.Progress.ItemsBackedUp)

	before, err := compare.Take(ctx, w.restConfig(), scope)
	require.NoError(t, err)
	require.NotEmpty(t, before.Objects)
	checkTarball(t, w, "loop", before)
	if w.manifests != "" {
		lookInside(t, w, before)
	}

	_, err = seed.Remove(ctx, w.restConfig())
	require.NoError(t, err)
	empty, err := compare.Take(ctx, w.restConfig(), scope)
	require.NoError(t, err)
	require.Empty(t, empty.Objects, "destroyed")

	_, err = w.cli.Run(ctx, "restore", "create", "loop-again", "--from-backup", "loop", "--wait")
	require.NoError(t, err)
	requireCompleted(t, w, "restore", "loop-again")
	report, _, err := compare.DiffLive(ctx, w.restConfig(), scope, before, patience)
	require.NoError(t, err)
	require.True(t, report.Same(), "%s", report)
	require.Equal(t, len(before.Objects), report.Equal)

	_, err = w.cli.Run(ctx, "backup", "delete", "loop", "--confirm")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		keys, err := w.keys(ctx)
		return err == nil && len(keys) == 0
	}, patience, 200*time.Millisecond, "the bucket gets empty")
}

// requireCompleted reads the status of a finished backup or restore and wants it flawless.
func requireCompleted(t *testing.T, w *world, noun, name string) product.Status {
	t.Helper()
	status, err := w.cli.Status(t.Context(), noun, name)
	require.NoError(t, err)
	require.Equal(t, "Completed", status.Phase, "%+v", status)
	require.Zero(t, status.Errors)
	require.Positive(t, status.Progress.TotalItems)
	return status
}

// downloadTarball fetches the tarball of a backup through the product.
func downloadTarball(t *testing.T, w *world, backup string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), backup+".tar.gz")
	_, err := w.cli.Run(t.Context(), "backup", "download", backup, "--output", path)
	require.NoError(t, err)
	return path
}
