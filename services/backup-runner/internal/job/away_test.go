package job

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// A backup whose bucket goes away while it runs fails, and gives its place to others.
func TestABackupWhoseBucketIsAwayFails(t *testing.T) {
	w := newWorld(t)
	w.StorePatience = time.Second
	b := w.admitBackup(t, "b1")
	var away atomic.Bool
	w.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpCompose {
			away.Store(true)
		}
		if away.Load() {
			return errors.New("connection refused")
		}
		return nil
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got := w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Contains(t, got.Status.FailureReason, "connection refused")
}

// The runner of a deleted backup has stopped: others need not wait for the claim timeout, unless
// another instance may have taken the backup over before. Where the name belongs to another object by
// the time the runner reads it, the entry is that of the one which is gone, and goes with it.
func TestADeletedBackupLeavesTheLedgerWithItsRunner(t *testing.T) {
	for name, tt := range map[string]struct{ uncertain, replaced bool }{"certain": {}, "perhaps taken over": {uncertain: true}, "replaced": {replaced: true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.admitBackup(t, "b1")
			var gone atomic.Bool
			w.store.Inject(func(op memstore.Op, _ string) error {
				if op == memstore.OpCompose && gone.CompareAndSwap(false, true) {
					require.NoError(t, w.client.Delete(t.Context(), w.readBackup(t, b)))
					if tt.uncertain {
						w.instance.ConfirmWith = func(client.Object) error { return claim.ErrLost }
					}
					if tt.replaced {
						other := &velerov1.Backup{}
						other.Namespace, other.Name, other.UID = namespace, "b1", "uid-2"
						require.NoError(t, w.client.Create(t.Context(), other))
					}
					w.instance.LoseClaim()
				}
				return nil
			})
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			_, found, err := ledger.New(w.client, w.client, namespace).Get(t.Context(), b.UID)
			require.NoError(t, err)
			require.Equal(t, tt.uncertain, found)
			if tt.replaced {
				require.Empty(t, w.readBackup(t, b).Status.Phase, "the other one is left alone")
			}
		})
	}
}
