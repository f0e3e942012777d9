package job_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// failNextCalls lets the next calls fail that come after begin is true and touch a key that contains part.
func (b *bench) failNextCalls(calls int64, part string, begin func() bool) (left *atomic.Int64) {
	left = &atomic.Int64{}
	left.Store(calls)
	b.store.Inject(func(_ memstore.Op, key string) error {
		if strings.Contains(key, part) && begin() && left.Add(-1) >= 0 {
			return errors.New("no route to the bucket")
		}
		return nil
	})
	return left
}

func alwaysTrue() bool { return true }

// newOrphanedRestore is a restore whose first holder died in the middle.
func newOrphanedRestore(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	prepareInterrupted(t, b, cancel)
	require.ErrorIs(t, b.runner.Run(ctx, "r", "uid-r"), context.Canceled)
	b.cluster.Fail(nil)
	b.config.Claims = &jobtest.Holder{Name: "next"}
	return b
}

// An outage of more than a few tries at a takeover delays it.
func TestATakeoverWaitsForTheBucket(t *testing.T) {
	for what, key := range map[string]string{
		"owner file": "owner", "listing of records": layout.RestoreRecords("r", "uid-r") + "record-", "tarball": layout.BackupTarball("b"),
	} {
		t.Run(what, func(t *testing.T) {
			b := newOrphanedRestore(t)
			left := b.failNextCalls(10, key, alwaysTrue)
			require.NoError(t, b.hurriedRunner(time.Minute).Run(t.Context(), "r", "uid-r"))
			require.Negative(t, left.Load())
			r := b.getRestore(t)
			require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
			require.Equal(t, &velerov1.RestoreProgress{TotalItems: 60, ItemsRestored: 60}, r.Status.Progress)
		})
	}
}

func TestABucketThatStaysAwayFailsTheRestore(t *testing.T) {
	b := newOrphanedRestore(t)
	b.failNextCalls(1<<40, "record-", alwaysTrue)
	require.NoError(t, b.hurriedRunner(50*time.Millisecond).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.FailureReason, "no route to the bucket")
}

// The end of a finished restore waits for the bucket, and its files are stored.
func TestTheDecisionWaitsForTheBucket(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	left := b.failNextCalls(20, "record-", func() bool { return len(b.cluster.Requests("POST /api/v1/namespaces/a/configmaps")) == 3 })
	require.NoError(t, b.hurriedRunner(time.Minute).Run(t.Context(), "r", "uid-r"))
	require.Negative(t, left.Load())
	require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase)
	require.Contains(t, b.readGzip(t, layout.RestoreResourceList("r")), "c002(created)")
	require.Contains(t, b.readGzip(t, layout.RestoreLog("r")), "level=info")
}

// No other process reads the restore while its records are opened or its outcome is stored.
func TestWaitingForTheBucketEndsWithTheRestore(t *testing.T) {
	for name, stop := range map[string]func(*testing.T, *bench){
		"deleted": func(t *testing.T, b *bench) { require.NoError(t, b.client.Delete(t.Context(), b.getRestore(t))) },
		"taken": func(t *testing.T, b *bench) {
			r := b.getRestore(t)
			require.NoError(t, claim.Set(r, claim.Claim{Owner: "other", Epoch: 9}))
			require.NoError(t, b.client.Update(t.Context(), r))
		},
	} {
		for where, key := range map[string]string{"records": "record-", "log": layout.RestoreLog("r")} {
			t.Run(name+" "+where, func(t *testing.T) {
				b := newBench(t)
				b.storeTarball(t, 3)
				b.createRestore(t, true)
				var once sync.Once
				b.failNextCalls(1<<40, key, func() bool {
					once.Do(func() { stop(t, b) })
					return true
				})
				require.NoError(t, b.hurriedRunner(time.Hour).Run(t.Context(), "r", "uid-r"))
				require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)
				require.Empty(t, b.ended)
			})
		}
	}
}
