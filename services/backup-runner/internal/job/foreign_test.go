package job

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// leaveBackup makes a backup that another server left in a phase, and stores its files unless it was
// still InProgress.
func (w *world) leaveBackup(t *testing.T, phase velerov1.BackupPhase) *velerov1.Backup {
	t.Helper()
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b1", UID: "uid-1"}}
	b.Spec.StorageLocation = "default"
	at := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	b.Status = velerov1.BackupStatus{Phase: phase, StartTimestamp: &at, FormatVersion: "1.1.0", Version: 1, Warnings: 2, Errors: 1}
	require.NoError(t, w.client.Create(t.Context(), b))
	if phase == velerov1.BackupPhaseInProgress {
		return b
	}
	data, err := json.Marshal(b)
	require.NoError(t, err)
	w.store.Set(layout.BackupMetadata("b1"), data)
	for _, key := range []string{layout.BackupTarball("b1"), layout.BackupLog("b1"), layout.BackupResults("b1"), layout.BackupItemOperations("b1")} {
		w.store.Set(key, []byte("of Velero"))
	}
	return b
}

// A backup that another server left waiting or finalizing stayed in that phase, which is that of its
// metadata file: synchronisation hides such a file.
func TestABackupThatAnotherServerLeftEnds(t *testing.T) {
	for phase, want := range map[velerov1.BackupPhase]velerov1.BackupPhase{
		velerov1.BackupPhaseInProgress:                                velerov1.BackupPhaseFailed,
		velerov1.BackupPhaseWaitingForPluginOperations:                velerov1.BackupPhasePartiallyFailed,
		velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed: velerov1.BackupPhasePartiallyFailed,
		velerov1.BackupPhaseFinalizing:                                velerov1.BackupPhasePartiallyFailed,
		velerov1.BackupPhaseFinalizingPartiallyFailed:                 velerov1.BackupPhasePartiallyFailed,
	} {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t)
			b := w.leaveBackup(t, phase)
			keys := w.store.Keys()
			require.NoError(t, w.Run(t.Context(), "b1", b.UID), "it needs no place in the ledger")
			got := w.readBackup(t, b)
			require.Equal(t, want, got.Status.Phase)
			require.Equal(t, mark.ForeignReason, got.Status.FailureReason)
			require.NotNil(t, got.Status.CompletionTimestamp)
			require.Equal(t, keys, w.store.Keys())
			if want == velerov1.BackupPhaseFailed {
				return
			}
			require.Equal(t, []int{2, 2}, []int{got.Status.Warnings, got.Status.Errors})
			require.Equal(t, "1.1.0", got.Status.FormatVersion, "the tarball is Velero's")
			stored, found, err := commit.Committed(t.Context(), w.store, b)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, got.Status, stored.Status)
			operations, _ := w.store.Bytes(layout.BackupItemOperations("b1"))
			require.Equal(t, "of Velero", string(operations))
		})
	}
}

// What lacks its tarball cannot be restored, and what lacks its metadata file is not collected anew,
// hours later and under the same name.
func TestABackupOfAnotherServerWithoutItsDataFails(t *testing.T) {
	for name, key := range map[string]string{"no tarball": layout.BackupTarball("b1"), "no metadata file": layout.BackupMetadata("b1")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.leaveBackup(t, velerov1.BackupPhaseFinalizing)
			require.NoError(t, w.store.Delete(t.Context(), key))
			keys := w.store.Keys()
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.readBackup(t, b)
			require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
			require.Equal(t, mark.ForeignReason, got.Status.FailureReason)
			require.Equal(t, keys, w.store.Keys())
		})
	}
}

// The jobs of a live server are that server's.
func TestABackupOfALiveServerIsLeftToIt(t *testing.T) {
	w := newWorld(t)
	b := w.leaveBackup(t, velerov1.BackupPhaseWaitingForPluginOperations)
	server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "velero", Labels: map[string]string{"component": "velero"}}}
	server.Status.Replicas = 1
	require.NoError(t, w.client.Create(t.Context(), server))
	want := w.readBackup(t, b)
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, want, w.readBackup(t, b))
	require.NoError(t, w.client.Delete(t.Context(), server))
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, w.readBackup(t, b).Status.Phase)
}

// A bucket that is away does not fail a backup that lies in it.
func TestABackupOfAnotherServerWaitsForItsBucket(t *testing.T) {
	w := newWorld(t)
	w.StorePatience = 0
	b := w.leaveBackup(t, velerov1.BackupPhaseWaitingForPluginOperations)
	w.store.Inject(func(memstore.Op, string) error { return errGone })
	require.ErrorIs(t, w.Run(t.Context(), "b1", b.UID), errGone)
	c, _, err := claim.Parse(w.readBackup(t, b))
	require.NoError(t, err)
	require.Empty(t, c.Owner, "any runner may take it")
	w.store.Inject(nil)
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, w.readBackup(t, b).Status.Phase)
}

// A runner may die at every call to the bucket; another comes to the same end.
func TestASuccessorEndsABackupOfAnotherServer(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{velerov1.BackupPhaseInProgress, velerov1.BackupPhaseWaitingForPluginOperations} {
		for k := 1; ; k++ {
			w := newWorld(t)
			w.StorePatience = 0
			b := w.leaveBackup(t, phase)
			dying, die := context.WithCancelCause(t.Context())
			var calls atomic.Int32
			w.store.Inject(func(memstore.Op, string) error {
				if int(calls.Add(1)) < k {
					return nil
				}
				w.instance.LoseClaim()
				die(errGone)
				return errGone
			})
			_ = w.Run(dying, "b1", b.UID) // it ends as that of a killed process
			w.store.Inject(nil)
			die(nil)
			if int(calls.Load()) < k {
				require.Greater(t, k, 2)
				break
			}
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.readBackup(t, b)
			require.True(t, got.Status.Phase.Terminal())
			require.Equal(t, phase == velerov1.BackupPhaseInProgress, got.Status.Phase == velerov1.BackupPhaseFailed)
			require.Equal(t, mark.ForeignReason, got.Status.FailureReason)
		}
	}
}
