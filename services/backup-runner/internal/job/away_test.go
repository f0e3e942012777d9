package job

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
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
