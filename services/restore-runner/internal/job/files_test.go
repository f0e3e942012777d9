package job_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
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

// A plugin says in words of its own that credentials may only read. Each record was tried for StorePatience.
func TestAReadOnlyLocationThatRefusesKeepsNobodyWaiting(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	b.locations.mode = velerov1.LocationModeReadOnly
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpCreate || op == memstore.OpPut {
			return errors.New("the plugin answered: 405 Method Not Allowed")
		}
		return nil
	})
	require.NoError(t, b.hurriedRunner(time.Hour).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
	require.Equal(t, &velerov1.RestoreProgress{TotalItems: 3, ItemsRestored: 3}, r.Status.Progress)
}

// What is only away is waited for, as everywhere.
func TestAReadOnlyLocationThatIsAwayIsWaitedFor(t *testing.T) {
	for what, key := range map[string]string{"owner file": "owner", "log": layout.RestoreLog("r")} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			b.storeTarball(t, 3)
			b.createRestore(t, true)
			b.locations.mode = velerov1.LocationModeReadOnly
			left := b.failNextCalls(10, key, alwaysTrue)
			require.NoError(t, b.hurriedRunner(time.Minute).Run(t.Context(), "r", "uid-r"))
			require.Negative(t, left.Load())
			require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase)
			require.Contains(t, b.readGzip(t, layout.RestoreLog("r")), "level=info")
		})
	}
}
