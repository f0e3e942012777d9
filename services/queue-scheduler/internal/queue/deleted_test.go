package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// The entry of a running backup goes with its object, and another backup of the same namespaces
// starts while the runner of the first one works on: it has not seen yet that its object is gone.
func TestADeletedBackupKeepsItsEntryForTheClaimTimeout(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	s, now := b.newScheduler(func(c *queue.Config) { c.ClaimTimeout = claimTimeout }), b.clock
	b.createBackup("first", 1, "ns1")
	b.createBackup("second", 2, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.setPhase("first", velerov1.BackupPhaseInProgress)
	require.NoError(t, b.c.Delete(t.Context(), b.getBackup("first")))
	now.Step(time.Hour)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"first"}, b.admittedNames())
	now.Step(29 * time.Second)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("second"))
	now.Step(time.Second)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("second"))
}
