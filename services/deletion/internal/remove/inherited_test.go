package remove

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
)

// A backup that another server left waiting for operations, or finalizing, counts as being written for ever: it can neither be
// deleted nor does it expire.
func TestABackupThatAnotherServerLeftIsDeleted(t *testing.T) {
	for phase, held := range map[velerov1.BackupPhase]bool{
		velerov1.BackupPhaseWaitingForPluginOperations:                false, // nobody claims it in that phase
		velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed: false,
		velerov1.BackupPhaseFinalizing:                                true,
		velerov1.BackupPhaseFinalizingPartiallyFailed:                 true,
	} {
		t.Run(string(phase), func(t *testing.T) {
			k := backup(phase)
			b := newBed(t, k, request("d"))
			b.fill(k)
			if held {
				busy := b.backup()
				require.NoError(t, claim.Set(busy, claim.Claim{Holder: "runner", Epoch: 1}))
				require.NoError(t, b.client.Update(t.Context(), busy))
				require.Equal(t, Done, b.process("d"))
				require.Equal(t, []string{errRunning.Error()}, b.request("d").Status.Errors, "a runner writes its files")
				require.Equal(t, phase, b.backup().Status.Phase)
				require.NoError(t, claim.Release(busy))
				require.NoError(t, b.client.Update(t.Context(), busy))
				require.NoError(t, b.client.Create(t.Context(), request("e")))
				require.Equal(t, Done, b.process("e"))
			} else {
				require.Equal(t, Done, b.process("d"))
			}
			require.Nil(t, b.backup())
			require.Equal(t, neighbours, b.store.Keys())
		})
	}
}
