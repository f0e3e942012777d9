package job

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
)

// A runner that waits for a volume continues once the other backup releases it or ends, and stops
// with its process.
func TestAVolumeOfAnotherBackupIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1")
	l := ledger.New(w.client, w.client, namespace)
	other := ledger.Entry{UID: "uid-2", Kind: ledger.KindBackup, Namespace: namespace, Name: "b2", Since: time.Unix(2, 0)}
	require.NoError(t, l.Readmit(t.Context(), other))
	require.NoError(t, l.LockVolume(t.Context(), other.UID, "disk"))
	stop := make(chan struct{})
	v := &volumeLocks{ledger: w.Ledger, uid: b.UID, stop: stop, clock: w.Clock, log: w.Log}
	got := make(chan error, 1)
	var unlock func()
	go func() {
		var err error
		unlock, err = v.lockVolume(t.Context(), "disk")
		got <- err
	}()
	require.NoError(t, l.Withdraw(t.Context(), other))
	require.NoError(t, <-got)
	require.NoError(t, l.Readmit(t.Context(), other))
	require.ErrorIs(t, l.LockVolume(t.Context(), other.UID, "disk"), ledger.ErrVolumeBusy)
	unlock()
	require.NoError(t, l.LockVolume(t.Context(), other.UID, "disk"))

	ctx, cancel := context.WithCancel(t.Context())
	close(stop)
	_, err := v.lockVolume(ctx, "disk")
	require.ErrorIs(t, err, collect.ErrStopped)
	cancel()
	_, err = v.lockVolume(ctx, "disk")
	require.ErrorIs(t, err, context.Canceled)
}
