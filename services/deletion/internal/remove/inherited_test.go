package remove

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// A backup that another server left finalizing counts as being written indefinitely: it can neither
// be deleted nor does it expire. While it is held, by a runner that finalizes it or by who cancels
// it, its metadata file is written, also after a deletion has removed that.
func TestABackupThatAnotherServerLeftIsDeleted(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed} {
		t.Run(string(phase), func(t *testing.T) {
			k := backup(phase)
			b := newBed(t, k, request("d"))
			b.fill(k)
			busy := b.backup()
			require.NoError(t, claim.Set(busy, claim.Claim{Holder: "holder", Epoch: 1}))
			require.NoError(t, b.client.Update(t.Context(), busy))
			require.Equal(t, Done, b.process("d"))
			require.NotNil(t, b.backup())
			require.Equal(t, []string{errRunning.Error()}, b.request("d").Status.Errors)
			require.Equal(t, phase, b.backup().Status.Phase)
			free := b.backup()
			delete(free.Annotations, holdfast.AnnotationClaim)
			require.NoError(t, b.client.Update(t.Context(), free))
			require.NoError(t, b.client.Create(t.Context(), request("e")))
			require.Equal(t, Done, b.process("e"))
			require.Nil(t, b.backup())
			require.Equal(t, neighbours, b.store.Keys())
		})
	}
}

// A backup that another server left waiting has no claim, also while its operations are followed
// here. It was deleted with their records, by which they are cancelled.
func TestABackupWhoseInheritedOperationsRunIsNotDeleted(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed,
	} {
		t.Run(string(phase), func(t *testing.T) {
			k := backup(phase)
			b := newBed(t, k, request("d"))
			b.fill(k)
			list := layout.BackupOperations(k.Name, string(k.UID)) + "list"
			b.store.Set(list, []byte("{}"))
			keys := b.store.Keys()
			require.Equal(t, Done, b.process("d"))
			require.Equal(t, []string{errRunning.Error()}, b.request("d").Status.Errors)
			require.Equal(t, phase, b.backup().Status.Phase)
			require.Equal(t, keys, b.store.Keys())

			ended := b.backup() // the operations were cancelled, and the runner ended the backup
			ended.Status.Phase = velerov1.BackupPhaseFailed
			require.NoError(t, b.client.Update(t.Context(), ended))
			require.NoError(t, b.client.Create(t.Context(), request("e")))
			require.Equal(t, Done, b.process("e"))
			require.Nil(t, b.backup())
			require.Equal(t, neighbours, b.store.Keys())
		})
	}
}

// A backup whose operations continue has no holder, and is not deleted under them: they would be
// orphaned.
func TestABackupWhoseOperationsGoOnIsNotDeleted(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed,
		velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed, // between monitor and runner
	} {
		k := backup(phase)
		require.NoError(t, claim.Set(k, claim.Claim{Epoch: 1}))
		b := newBed(t, k, request("d"))
		b.fill(k)
		require.Equal(t, Done, b.process("d"))
		require.Equal(t, []string{errRunning.Error()}, b.request("d").Status.Errors)
		require.Equal(t, phase, b.backup().Status.Phase)
	}
}
