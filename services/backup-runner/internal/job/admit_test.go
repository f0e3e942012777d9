package job

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
)

// Every runner finds what was admitted and what was begun, and leaves alone what waits for others
// or has ended.
func TestWhichBackupsARunnerLooksAt(t *testing.T) {
	want := map[velerov1.BackupPhase]engine.Interest{
		velerov1.BackupPhaseReadyToStart: engine.Begin, velerov1.BackupPhaseInProgress: engine.Resume,
		velerov1.BackupPhaseFinalizing: engine.Resume, velerov1.BackupPhaseFinalizingPartiallyFailed: engine.Resume,
	}
	for _, phase := range append([]velerov1.BackupPhase{
		"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress,
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed,
		velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed,
	}, terminalPhases...) {
		b := &velerov1.Backup{}
		b.UID, b.Status.Phase = "u", phase
		require.NoError(t, claim.Set(b, claim.Claim{Epoch: 1}))
		got, err := New(Config{}).Pending(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, want[phase], got, phase)
	}
}

// What waits for plugin operations is not a runner's, although its claim names one that died.
func TestABackupThatWaitsForOperationsIsNotTaken(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1", func(b *velerov1.Backup) {
		b.Status.Phase = velerov1.BackupPhaseWaitingForPluginOperations
		require.NoError(t, claim.Set(b, claim.Claim{Owner: "dead", Epoch: 1}))
	})
	want := w.readBackup(t, b)
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, want, w.readBackup(t, b))
	require.Empty(t, w.store.Keys())
}
