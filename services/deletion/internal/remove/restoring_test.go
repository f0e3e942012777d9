package remove

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
)

func restoreIn(phase velerov1.RestorePhase) *velerov1.Restore {
	r := restoreOf("r", "b")
	r.Status.Phase = phase
	return r
}

func (b *bed) setRestore(phase velerov1.RestorePhase) {
	b.t.Helper()
	r := findObject(b, &velerov1.Restore{}, "r")
	r.Status.Phase = phase
	require.NoError(b.t, b.client.Update(b.t.Context(), r))
}

// The data goes while a restore reads it: the restore loses the objects it has not come to.
func TestABackupThatIsBeingRestoredIsNotDeleted(t *testing.T) {
	for phase, refused := range map[velerov1.RestorePhase]bool{
		velerov1.RestorePhaseInProgress: true, velerov1.RestorePhaseWaitingForPluginOperations: true, velerov1.RestorePhaseFinalizing: true,
		velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed: true, velerov1.RestorePhaseFinalizingPartiallyFailed: true,
		velerov1.RestorePhaseNew: false, velerov1.RestorePhaseCompleted: false, velerov1.RestorePhaseFailedValidation: false,
	} {
		other := restoreOf("other", "b2")
		other.Status.Phase = velerov1.RestorePhaseInProgress
		b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreIn(phase), other)
		b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
		keys := b.store.Keys()
		require.Equal(t, Done, b.processRequest("d"))
		if !refused {
			require.Nil(t, b.readBackup(), phase)
			continue
		}
		d := b.readRequest("d")
		require.Equal(t, velerov1.DeleteBackupRequestPhaseProcessed, d.Status.Phase, phase)
		require.Equal(t, []string{`the backup is being restored by "r"`}, d.Status.Errors, phase)
		require.Equal(t, velerov1.BackupPhaseCompleted, b.readBackup().Status.Phase, phase)
		require.Equal(t, keys, b.store.Keys(), phase)
	}
}

// A restore is claimed after the deletion was admitted and before the backup is Deleting: its
// runner did not read the deletion and works on. The deletion waits, without a claim, and continues
// when the restore has ended.
func TestADeletionWaitsForARestoreThatWasClaimedMeanwhile(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreIn(velerov1.RestorePhaseNew))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	keys := b.store.Keys()
	b.r.Actions = actionsFunc(func(context.Context, itemaction.Job) error { t.Error("asked"); return nil })
	late := interceptor.NewClient(b.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if k, ok := obj.(*velerov1.Backup); ok && k.Status.Phase == velerov1.BackupPhaseDeleting {
				b.setRestore(velerov1.RestorePhaseInProgress)
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	b.r.Client = late
	require.Equal(t, Later, b.processRequest("d"))
	require.Equal(t, velerov1.BackupPhaseDeleting, b.readBackup().Status.Phase)
	for range 2 { // at once, and when the pause is over
		require.Equal(t, keys, b.store.Keys())
		d := b.readRequest("d")
		require.Equal(t, velerov1.DeleteBackupRequestPhaseInProgress, d.Status.Phase)
		require.Equal(t, []string{`the backup is being restored by "r"`}, d.Status.Errors)
		held, _, err := claim.Parse(d)
		require.NoError(t, err)
		require.Empty(t, held.Owner, "whoever is free may go on")
		require.Equal(t, Later, b.processRequest("d"))
		b.clock.Step(restorePause)
		require.Equal(t, Later, b.processRequest("d"))
	}
	b.r.Actions = nil
	b.setRestore(velerov1.RestorePhaseCompleted)
	b.clock.Step(restorePause + time.Second)
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, neighbours, b.store.Keys())
	require.Nil(t, b.readBackup())
	require.Nil(t, findObject(b, &velerov1.Restore{}, "r"))
}
