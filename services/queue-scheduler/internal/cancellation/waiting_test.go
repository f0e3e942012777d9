package cancellation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// A job whose operations continue is left to async-operation-monitor, which cancels them; the deadline
// for its runner begins when they have ended.
func TestOperationsAreCancelledBeforeTheDeadlineOfTheirJob(t *testing.T) {
	o := runningBackup("b", holdfast.AnnotationCancel, "bob")
	o.Status.Phase = velerov1.BackupPhaseWaitingForPluginOperations
	require.NoError(t, claim.Set(o, claim.Claim{Epoch: 3}))
	b := newBed(o)
	c := b.newReplica(t)
	result, err := c.ReconcileBackup(t.Context(), requestFor("b"))
	require.NoError(t, err)
	require.Greater(t, result.RequeueAfter, deadline)
	b.clock.Step(result.RequeueAfter - time.Second)
	ended := readObject(t, b, o)
	ended.Status.Phase = velerov1.BackupPhaseFinalizing
	require.NoError(t, claim.Set(ended, claim.Claim{Owner: "runner", Epoch: 4}))
	require.NoError(t, b.client.Update(t.Context(), ended))
	passDeadline(t, b, c, "b")
	require.Equal(t, claim.Claim{Epoch: 5}, claimOf(t, readObject(t, b, o)), "a runner has the whole deadline")
}

// A job whose operations took longer than the deadline of a runner to end is no job that no runner takes.
func TestARunnerHasTimeToTakeAJobThatWaited(t *testing.T) {
	o := runningBackup("b", holdfast.AnnotationCancel, "bob")
	o.Status.Phase = velerov1.BackupPhaseWaitingForPluginOperations
	require.NoError(t, claim.Set(o, claim.Claim{Epoch: 3}))
	b := newBed(o)
	c := b.newReplica(t)
	_, err := c.ReconcileBackup(t.Context(), requestFor("b"))
	require.NoError(t, err)
	b.clock.Step(2 * deadline)
	ended := readObject(t, b, o)
	ended.Status.Phase = velerov1.BackupPhaseFinalizing // the claim stays as it was released
	require.NoError(t, b.client.Update(t.Context(), ended))
	result, err := c.ReconcileBackup(t.Context(), requestFor("b"))
	require.NoError(t, err)
	require.Equal(t, deadline, result.RequeueAfter)
	require.Empty(t, b.events)
}

// A job whose operations are never cancelled is left to a runner all the same.
func TestAJobThatWaitsIsFinalizedAtLast(t *testing.T) {
	for from, to := range map[velerov1.BackupPhase]velerov1.BackupPhase{
		velerov1.BackupPhaseWaitingForPluginOperations:                velerov1.BackupPhaseFinalizing,
		velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed: velerov1.BackupPhaseFinalizingPartiallyFailed,
	} {
		o, r := runningBackup("b", holdfast.AnnotationCancel, "bob"), newRestore("r", velerov1.RestorePhase(from))
		o.Status.Phase, r.Annotations = from, map[string]string{holdfast.AnnotationCancel: "bob"}
		require.NoError(t, claim.Set(o, claim.Claim{Epoch: 3}))
		require.NoError(t, claim.Set(r, claim.Claim{Epoch: 3}))
		b := newBed(o, r)
		c := b.newReplica(t)
		for range 2 {
			result, err := c.ReconcileBackup(t.Context(), requestFor("b"))
			require.NoError(t, err)
			_, err = c.ReconcileRestore(t.Context(), requestFor("r"))
			require.NoError(t, err)
			b.clock.Step(result.RequeueAfter)
		}
		require.Equal(t, to, readObject(t, b, o).Status.Phase)
		require.Equal(t, velerov1.RestorePhase(to), readObject(t, b, r).Status.Phase)
		require.Equal(t, claim.Claim{Epoch: 4}, claimOf(t, readObject(t, b, o)))
	}
}
