package job

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

var terminalPhases = []velerov1.BackupPhase{
	velerov1.BackupPhaseFailedValidation, velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed,
	velerov1.BackupPhaseFailed, velerov1.BackupPhaseDeleting,
}

// An ended Backup is left as it is, although it still has a ledger entry and a message requests to
// run it.
func TestAnEndedBackupIsNotRunAgain(t *testing.T) {
	for _, phase := range terminalPhases {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t)
			b := w.admitBackup(t, "b1", func(b *velerov1.Backup) { b.Status.Phase, b.Status.FailureReason = phase, "an earlier end" })
			want := w.readBackup(t, b)
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Equal(t, want, w.readBackup(t, b))
			require.Empty(t, w.store.Keys())
		})
	}
}

// The phase becomes terminal before the runner writes its own: a runner that checked only at its
// start would overwrite it.
func TestATerminalPhaseIsNeverOverwritten(t *testing.T) {
	for _, phase := range terminalPhases {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t)
			b := w.admitBackup(t, "b1")
			var want velerov1.BackupStatus
			w.beforeObject(layout.BackupMetadata("b1"), func() {
				ended := w.readBackup(t, b)
				ended.Status.Phase, ended.Status.FailureReason = phase, "ended meanwhile"
				require.NoError(t, w.client.Update(t.Context(), ended))
				want = w.readBackup(t, b).Status
			})
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Equal(t, want.Phase, phase, "it ended while it ran")
			require.Equal(t, want, w.readBackup(t, b).Status)
		})
	}
}

// The object keeps its expiration where the metadata file has none, as those of other servers may:
// without it the backup would never be deleted. One that the file has is what was committed.
func TestTheExpirationOutlivesTheEnd(t *testing.T) {
	own, stored := metav1.NewTime(time.Unix(1800000000, 0)), metav1.NewTime(time.Unix(1900000000, 0))
	for name, tt := range map[string]struct{ stored, want *metav1.Time }{
		"none in the file": {nil, &own},
		"one in the file":  {&stored, &stored},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.admitBackup(t, "b1", abandonBackup, func(b *velerov1.Backup) { b.Status.Expiration = &own })
			committed := b.DeepCopy()
			committed.Status.Phase, committed.Status.Expiration = velerov1.BackupPhaseCompleted, tt.stored
			data, err := json.Marshal(committed)
			require.NoError(t, err)
			w.store.Set(layout.BackupMetadata("b1"), data)
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.readBackup(t, b)
			require.Equal(t, velerov1.BackupPhaseCompleted, got.Status.Phase)
			require.NotNil(t, got.Status.Expiration)
			require.True(t, got.Status.Expiration.Equal(tt.want), got.Status.Expiration)
		})
	}
}
