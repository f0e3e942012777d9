package testbed_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func TestDetachedClusterIsStoppedByItsDirectory(t *testing.T) {
	config := testbed.Config{Dir: filepath.Join(t.TempDir(), "cluster"), Detach: true}
	cluster, err := testbed.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(cluster.Stop)
	_, err = testbed.Start(t.Context(), config)
	require.ErrorIs(t, err, testbed.ErrRunning)
	require.NoError(t, testbed.StopDetached(config.Dir))
	checkStopped(t, cluster)
	require.NoDirExists(t, config.Dir)
	require.NoError(t, testbed.StopDetached(config.Dir), "nothing is there any more")
}

func TestMissingBinaryIsNamed(t *testing.T) {
	t.Setenv(testbed.AssetsVariable, t.TempDir())
	_, err := testbed.Binary("no-such-server")
	require.ErrorIs(t, err, testbed.ErrMissingBinary)
	require.ErrorContains(t, err, "no-such-server")
	require.ErrorContains(t, err, "make tools")
}

func TestFailingAPIServerIsReported(t *testing.T) {
	_, err := testbed.Start(t.Context(), testbed.Config{
		Dir: filepath.Join(t.TempDir(), "cluster"), APIServerArgs: []string{"--no-such-flag"},
	})
	require.ErrorContains(t, err, "kube-apiserver ended early")
	require.ErrorContains(t, err, "no-such-flag", "the error shows the end of the log")
}
