package job_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// A restore whose work directory was full downloaded its tarball again and again, InProgress, and
// held its namespaces.
func TestAWorkDirectoryThatTakesNothingEndsTheRestore(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	var once sync.Once
	b.store.Inject(func(_ memstore.Op, key string) error {
		if key == layout.BackupTarball("b") {
			once.Do(func() {
				directories, err := filepath.Glob(filepath.Join(b.config.WorkDir, "uid-r-*", "tarball"))
				require.NoError(t, err)
				require.Len(t, directories, 1)
				require.NoError(t, os.RemoveAll(directories[0]))
				require.NoError(t, os.WriteFile(directories[0], nil, 0o600))
			})
		}
		return nil
	})
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.FailureReason, "open the tarball")
}
