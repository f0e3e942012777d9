package job_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

func TestAFailedRestoreLeavesItsLog(t *testing.T) {
	b := newBench(t) // without a tarball
	b.createRestore(t, true)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Zero(t, r.Status.Errors)
	log := b.readGzip(t, layout.RestoreLog("r"))
	require.Contains(t, log, "level=error")
	require.Contains(t, log, "restore failed: open the tarball")
}

func TestAFailureWithoutAWritableBucketIsToldAllTheSame(t *testing.T) {
	b := newBench(t)
	b.locations.store = objectstore.ReadOnly(b.store)
	events := &jobtest.Events{}
	b.config.Events = events
	b.createRestore(t, true)
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Contains(t, events.Text(), `Warning FilesNotStored: log, results and lists not stored in location "default": the location cannot be written`)
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.FailureReason, "open the tarball")
	_, err := b.store.Get(t.Context(), layout.RestoreLog("r"))
	require.ErrorIs(t, err, objectstore.ErrNotFound)
}
