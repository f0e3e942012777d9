package job

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// Cut off from bucket and API server in the middle of the commit, past its claim: another holder
// ends the backup, and it is deleted. The commit is not repeated.
func TestACommitIsNotRepeatedWithoutTheClaim(t *testing.T) {
	w, b := richWorld(t, 1)
	next := w.anotherRunner(t, "next")
	var begun, lost atomic.Bool
	w.instance.ConfirmWith = func(client.Object) error {
		if lost.Load() {
			return claim.ErrLost
		}
		return nil
	}
	w.store.Inject(func(op memstore.Op, key string) error {
		if op != memstore.OpCreate || key != layout.BackupMetadata("b1") || !begun.CompareAndSwap(false, true) {
			return nil
		}
		require.NoError(t, next.Run(t.Context(), "b1", b.UID))
		lost.Store(true)
		require.NoError(t, w.client.Delete(t.Context(), w.readBackup(t, b)))
		for _, k := range w.store.Keys() {
			require.NoError(t, w.store.Delete(t.Context(), k))
		}
		return errors.New("no route to the bucket")
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.True(t, lost.Load())
	require.Empty(t, w.store.Keys())
}

// The claim was taken from this holder, which finds its Lease fresh, so that Confirm makes no call. The
// write of the commit mark is what it fails at: the mark would forbid a request to cancel that the new
// holder has to follow, and the commit would come behind its back.
func TestTheCommitIsNotMarkedOverAnothersClaim(t *testing.T) {
	for name, tt := range map[string]struct {
		claim     claim.Claim
		cancelled bool
	}{
		"by the next holder":              {claim.Claim{Owner: "next", Epoch: 2}, false},
		"from a backup that is cancelled": {claim.Claim{Epoch: 2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.admitBackup(t, "b1")
			w.instance.ConfirmWith = func(client.Object) error { return nil }
			w.beforeObject("-logs.gz", func() {
				taken := w.readBackup(t, b)
				if tt.cancelled {
					require.NoError(t, mark.WriteCancelRequest(taken, mark.CancelRequest{By: "alice"}))
				}
				require.NoError(t, claim.Set(taken, tt.claim))
				require.NoError(t, w.client.Update(t.Context(), taken))
			})
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.readBackup(t, b)
			require.False(t, mark.IsCommitting(got))
			require.Equal(t, velerov1.BackupPhaseInProgress, got.Status.Phase)
			require.NotContains(t, w.store.Keys(), layout.BackupMetadata("b1"))
		})
	}
}

// A backup deleted under a live claim, which no Lease shows, is not committed.
func TestABackupThatIsGoneIsNotCommitted(t *testing.T) {
	for name, tt := range map[string]struct {
		err error
		at  string
	}{
		"complete": {at: layout.BackupLog("b1")},
		"failed":   {err: errors.New("no catalog"), at: layout.Composition("b1", "uid-1")},
	} {
		t.Run(name, func(t *testing.T) {
			w, b := richWorld(t, 1)
			w.Cluster = &unserved{w.Cluster, tt.err}
			var gone atomic.Bool
			w.store.Inject(func(op memstore.Op, key string) error {
				if op == memstore.OpCreate && key == tt.at && gone.CompareAndSwap(false, true) {
					require.NoError(t, w.client.Delete(t.Context(), w.readBackup(t, b)))
				}
				return nil
			})
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.True(t, gone.Load())
			require.NotContains(t, w.store.Keys(), layout.BackupMetadata("b1"))
		})
	}
}

// A runner that wakes up in its commit to find that of another, which has ended the backup, does
// not count and announce that end again.
func TestAnEndIsToldOnceByWhoeverWroteIt(t *testing.T) {
	w, b := richWorld(t, 1)
	next := w.anotherRunner(t, "next")
	var begun atomic.Bool
	w.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && key == layout.BackupMetadata("b1") && begun.CompareAndSwap(false, true) {
			require.NoError(t, next.Run(t.Context(), "b1", b.UID))
		}
		return nil
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.True(t, begun.Load())
	require.Equal(t, []string{"InProgress", "PartiallyFailed"}, w.events.phases)
}
