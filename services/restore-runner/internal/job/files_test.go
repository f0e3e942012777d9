package job_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
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
	require.Contains(t, events.Text(), `Warning FilesNotStored: log, results and lists not stored in location "default": the location cannot be written, nor can another one that is the default`)
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.FailureReason, "open the tarball")
	_, err := b.store.Get(t.Context(), layout.RestoreLog("r"))
	require.ErrorIs(t, err, objectstore.ErrNotFound)
}

// A plugin says in words of its own that credentials may only read. Each record was tried for StorePatience. A default
// location that is away is not waited for either.
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
	away := memstore.New()
	away.Inject(func(memstore.Op, string) error { return errors.New("connection refused") })
	b.locations.other, b.locations.phase = away, velerov1.LocationPhaseUnavailable
	require.NoError(t, b.hurriedRunner(time.Hour).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
	require.Equal(t, &velerov1.RestoreProgress{TotalItems: 3, ItemsRestored: 3}, r.Status.Progress)
	require.Empty(t, mark.FilesLocation(r))
}

// The bucket of the backup may only be read: the records, by which another process resumes, and the files are in
// the default location.
func TestARestoreFromALocationThatRefusesIsRecordedInTheDefaultOne(t *testing.T) {
	b := newBench(t)
	other := memstore.New()
	b.locations.other = other
	ctx, cancel := context.WithCancel(t.Context())
	prepareInterrupted(t, b, cancel)
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpCreate || op == memstore.OpPut {
			return objectstore.ErrAccess
		}
		return nil
	})
	require.ErrorIs(t, b.runner.Run(ctx, "r", "uid-r"), context.Canceled)
	require.Equal(t, "other", mark.FilesLocation(b.getRestore(t)))
	b.cluster.Fail(nil)
	next := b.config
	next.Claims = &jobtest.Holder{Name: "next"}
	require.NoError(t, newRunner(next).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
	require.Equal(t, "other", mark.FilesLocation(r))
	require.Zero(t, r.Status.Warnings)
	for _, key := range b.store.Keys() {
		require.NotContains(t, key, layout.RestoresDir)
	}
	b.store = other
	log := b.readGzip(t, layout.RestoreLog("r"))
	require.Contains(t, log, `they are stored in the default location, \"other\"`)
	require.Contains(t, log, "restore goes on at epoch 2")
	for _, key := range []string{layout.RestoreResults("r"), layout.RestoreResourceList("r"), layout.RestoreItemOperations("r")} {
		require.NotEmpty(t, b.readGzip(t, key))
	}
}

// Where the records of the first holder may be, a later one does not begin others elsewhere.
func TestALaterAttemptSaysWhyTheDefaultLocationIsNotTried(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	prepareInterrupted(t, b, cancel)
	require.ErrorIs(t, b.runner.Run(ctx, "r", "uid-r"), context.Canceled)
	b.cluster.Fail(nil)
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpCreate || op == memstore.OpPut {
			return objectstore.ErrAccess
		}
		return nil
	})
	other := memstore.New()
	b.locations.other = other
	var log bytes.Buffer
	b.config.Claims, b.config.Log = &jobtest.Holder{Name: "next"}, slog.New(slog.NewTextHandler(&log, nil))
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Contains(t, log.String(), "the default location is not tried: records of an earlier attempt may be in that of the backup")
	require.Empty(t, other.Keys())
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
