package job

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

var terminalPhases = []velerov1.BackupPhase{
	velerov1.BackupPhaseFailedValidation, velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed,
	velerov1.BackupPhaseFailed, velerov1.BackupPhaseDeleting,
}

// An ended Backup is left as it is, although a ledger entry of it is still there and a message asks to run it.
func TestAnEndedBackupIsNotRunAgain(t *testing.T) {
	for _, phase := range terminalPhases {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t)
			b := w.admit(t, "b1", func(b *velerov1.Backup) { b.Status.Phase, b.Status.FailureReason = phase, "an earlier end" })
			want := w.read(t, b)
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Equal(t, want, w.read(t, b))
			require.Empty(t, w.store.Keys())
		})
	}
}

// The phase is terminal by the time the runner wants to write its own: a runner that only looked when it began would overwrite it.
func TestATerminalPhaseIsNeverOverwritten(t *testing.T) {
	for _, phase := range terminalPhases {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t)
			b := w.admit(t, "b1")
			var want velerov1.BackupStatus
			w.at(layout.BackupMetadata("b1"), func() {
				ended := w.read(t, b)
				ended.Status.Phase, ended.Status.FailureReason = phase, "ended meanwhile"
				require.NoError(t, w.client.Update(t.Context(), ended))
				want = w.read(t, b).Status
			})
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Equal(t, want.Phase, phase, "it ended while it ran")
			require.Equal(t, want, w.read(t, b).Status)
		})
	}
}
