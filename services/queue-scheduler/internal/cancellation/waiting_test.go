package cancellation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// A backup whose operations continue is left to async-operation-monitor, which cancels them; the
// deadline for its runner begins when they have ended.
func TestOperationsAreCancelledBeforeTheDeadlineOfTheirJob(t *testing.T) {
	o := running("b", holdfast.AnnotationCancel, "bob")
	o.Status.Phase = velerov1.BackupPhaseWaitingForPluginOperations
	b := newBed(o)
	c := b.replica(t, "one")
	result, err := c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Greater(t, result.RequeueAfter, deadline)
	b.clock.Step(result.RequeueAfter - time.Second)
	ended := read(t, b, o)
	ended.Status.Phase = velerov1.BackupPhaseFinalizing
	require.NoError(t, b.client.Update(t.Context(), ended))
	require.Zero(t, overdue(t, b, c, "b"), "a runner has the whole deadline")
	require.Equal(t, velerov1.BackupPhaseFailed, read(t, b, o).Status.Phase)
}

// A backup whose operations are never cancelled ends all the same.
func TestABackupThatWaitsIsEndedAtLast(t *testing.T) {
	o := running("b", holdfast.AnnotationCancel, "bob")
	o.Status.Phase = velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
	b := newBed(o)
	c := b.replica(t, "one")
	for range 2 {
		result, err := c.ReconcileBackup(t.Context(), request("b"))
		require.NoError(t, err)
		require.Positive(t, result.RequeueAfter)
		b.clock.Step(result.RequeueAfter)
	}
	result, err := c.ReconcileBackup(t.Context(), request("b"))
	require.NoError(t, err)
	require.Zero(t, result)
	require.Equal(t, velerov1.BackupPhaseFailed, read(t, b, o).Status.Phase)
}
