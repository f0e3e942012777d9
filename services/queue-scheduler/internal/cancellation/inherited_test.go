package cancellation_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

var unfinished = []velerov1.BackupPhase{
	velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed,
	velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed,
}

// A job that another server left waiting for operations, or finalizing, cannot be cancelled, or it
// stays in that phase, which is that of the metadata file in the bucket.
func TestAJobThatAnotherServerLeftIsCancelled(t *testing.T) {
	for _, phase := range unfinished {
		t.Run(string(phase), func(t *testing.T) {
			o, r := backup("b", phase), restore("r", velerov1.RestorePhase(phase))
			o.Status.Errors, o.Status.FormatVersion = 2, "1.1.0"
			b := newBed(o, r)
			data, err := json.Marshal(o)
			require.NoError(t, err)
			b.store.Set(layout.BackupMetadata("b"), data)
			c := b.replica(t, "one")
			_, err = c.AskBackup(t.Context(), "b", "alice")
			require.NoError(t, err)
			_, err = c.AskRestore(t.Context(), "r", "alice")
			require.NoError(t, err)
			if strings.HasPrefix(string(phase), "WaitingForPluginOperations") { // what is followed here is cancelled first
				result, err := c.ReconcileBackup(t.Context(), request("b"))
				require.NoError(t, err)
				_, err = c.ReconcileRestore(t.Context(), request("r"))
				require.NoError(t, err)
				require.Greater(t, result.RequeueAfter, deadline)
				b.clock.Step(result.RequeueAfter)
			}
			require.Zero(t, overdue(t, b, c, "b"))
			got := read(t, b, backup("b", ""))
			require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
			require.Equal(t, "cancelled by alice", got.Status.FailureReason)
			committed, found, err := commit.Committed(t.Context(), b.store, got)
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, got.Status, committed.Status)
			require.Equal(t, "1.1.0", committed.Status.FormatVersion, "Velero's tarball stays what it is")
			require.Equal(t, []int{2}, []int{committed.Status.Errors})
			require.Equal(t, []string{layout.BackupMetadata("b")}, b.store.Keys())

			for range 2 {
				result, err := c.ReconcileRestore(t.Context(), request("r"))
				require.NoError(t, err)
				b.clock.Step(result.RequeueAfter)
			}
			_, err = c.ReconcileRestore(t.Context(), request("r"))
			require.NoError(t, err)
			ended := read(t, b, restore("r", ""))
			require.Equal(t, velerov1.RestorePhaseFailed, ended.Status.Phase)
			require.Equal(t, "cancelled by alice", ended.Status.FailureReason)
		})
	}
}

// A backup whose operations continue is left to async-operation-monitor, which cancels them; the
// deadline for its runner begins when they have ended. One that another server left, whose
// operations are followed without a claim, was ended after that deadline, in the middle of them.
func TestOperationsAreCancelledBeforeTheDeadlineOfTheirJob(t *testing.T) {
	for name, o := range map[string]*velerov1.Backup{
		"of a runner":    running("b", holdfast.AnnotationCancel, "bob"),
		"another server": backup("b", "", holdfast.AnnotationCancel, "bob"),
	} {
		t.Run(name, func(t *testing.T) {
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
		})
	}
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
