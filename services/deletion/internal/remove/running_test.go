package remove

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// A backup whose operations continue has no holder, and is not deleted under them: they would be
// orphaned.
func TestABackupWhoseOperationsGoOnIsNotDeleted(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed,
		velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed, // between monitor and runner
	} {
		k := newBackup(phase)
		require.NoError(t, claim.Set(k, claim.Claim{Epoch: 1}))
		b := newBed(t, k, newRequest("d"))
		b.fillBucket(k)
		require.Equal(t, Done, b.processRequest("d"))
		require.Equal(t, []string{errRunning.Error()}, b.readRequest("d").Status.Errors)
		require.Equal(t, phase, b.readBackup().Status.Phase)
	}
}
