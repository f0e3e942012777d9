package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// A backup that Velero left in ReadyToStart was run without a validation of its spec. It is queued
// again, once no server of Velero lives; what was begun is not admitted, a runner ends it.
func TestJobsThatAnotherServerLeftAreNotAdmitted(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{
		velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress, velerov1.BackupPhaseWaitingForPluginOperations,
		velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed, velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed,
	} {
		t.Run(string(phase), func(t *testing.T) {
			b := newBed(t, ledger.Limits{Backups: 1, Restores: 1}, interceptor.Funcs{})
			server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero", Labels: map[string]string{"component": "velero"}}}
			server.Status.Replicas = 1
			require.NoError(t, b.c.Create(t.Context(), server))
			b.createBackup("b", 1, "ns1")
			b.setPhase("b", phase)
			b.createRestore("r", 1, "ns2")
			b.setRestore("r", velerov1.RestorePhaseInProgress)
			s := b.newScheduler()
			require.NoError(t, s.Pass(t.Context()))
			require.Equal(t, phase, b.backupPhase("b"), "the server may begin it")
			require.NoError(t, b.c.Delete(t.Context(), server))
			require.NoError(t, s.Pass(t.Context()))
			require.Equal(t, phase, b.backupPhase("b"))
			require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore("r").Status.Phase)
			if phase != velerov1.BackupPhaseReadyToStart {
				require.Empty(t, b.admittedNames())
				return
			}
			require.Equal(t, []string{"b"}, b.admittedNames())
			require.Equal(t, "computed", b.getBackup("b").Spec.StorageLocation, "it was validated")
		})
	}
}

// What this server's runners work on is not validated again when the ledger was lost: a location
// that fails a probe would end it.
func TestOwnJobsAreNotValidatedAgain(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.rules.refused["b"], b.rules.refused["r"] = "no", "no"
	b.createBackup("b", 1, "ns1")
	b.setPhase("b", velerov1.BackupPhaseInProgress)
	b.createRestore("r", 1, "ns2")
	b.setRestore("r", velerov1.RestorePhaseInProgress)
	for _, o := range []client.Object{b.getBackup("b"), b.getRestore("r")} {
		require.NoError(t, claim.Set(o, claim.Claim{Owner: "runner", Epoch: 1}))
		require.NoError(t, b.c.Update(t.Context(), o))
	}
	require.NoError(t, b.newScheduler().Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseInProgress, b.backupPhase("b"))
	require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore("r").Status.Phase)
	require.Equal(t, []string{"b", "r"}, b.admittedNames())
}
