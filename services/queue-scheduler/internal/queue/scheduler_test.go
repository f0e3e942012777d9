package queue_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

func TestABackupGoesFromNewToARunner(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1, Restores: 1}, interceptor.Funcs{})
	b.createBackup("one", 1, "team-*")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "one")
	o := b.getBackup("one")
	require.Zero(t, o.Status.QueuePosition)
	require.Equal(t, "1", o.Annotations["holdfast.io/queue-sequence"])
	require.Equal(t, "computed", o.Spec.StorageLocation, "the computed spec is written at admission")
	e, found, err := b.ledger.Get(t.Context(), "uid-one")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, []string{"team-a", "team-b"}, e.Namespaces, "patterns are expanded once, here")
	b.requireEventually("hint", func() bool { return b.wire.hasSent("backup.run one") })

	b.setPhase("one", velerov1.BackupPhaseInProgress)
	b.createBackup("two", 2, "team-a")
	b.requirePhase(velerov1.BackupPhaseQueued, "two")
	require.Equal(t, []string{"one"}, b.admittedNames())
	b.setPhase("one", velerov1.BackupPhaseFinalizing)
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "two")
	require.Equal(t, []string{"two"}, b.admittedNames())
}

func TestRefusedJobs(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.rules.refused["bad"] = "no good"
	b.createBackup("bad", 1, "ns1")
	b.createBackup("later", 2, "ns1")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseFailedValidation, "bad")
	o := b.getBackup("bad")
	require.Equal(t, []string{"spec: no good"}, o.Status.ValidationErrors)
	require.Equal(t, "computed", o.Spec.StorageLocation)
	b.createRestore("bad", 1, "ns1")
	b.requireEventually("the restore of that name is refused", func() bool { return b.getRestore("bad").Status.Phase == velerov1.RestorePhaseFailedValidation })
	require.Equal(t, []string{"spec: no good"}, b.getRestore("bad").Status.ValidationErrors)
	b.requireEventually("it is an Event", func() bool { return slices.Contains(b.voice.allEvents(), "bad FailedValidation: spec: no good") })
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "later")

	b.createBackup("soon", 3, "ns1")
	b.requirePhase(velerov1.BackupPhaseQueued, "soon")
	b.rules.mu.Lock()
	b.rules.refused["soon"] = "no more"
	b.rules.mu.Unlock()
	b.setPhase("later", velerov1.BackupPhaseCompleted) // only what may start is validated again
	b.requirePhase(velerov1.BackupPhaseFailedValidation, "soon")
}

// What cannot be decided stays as it is and is decided later.
func TestAnOutageDelaysAndRefusesNothing(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.rules.down = errDown
	b.wire.down = errDown
	b.createBackup("one", 1, "ns1")
	b.runScheduler()
	b.requireEventually("a pass went by", func() bool { n, err := b.ledger.NextSequences(t.Context(), 1, 0); return err == nil && n > 3 })
	require.True(t, b.getBackup("one").Status.Phase.IsNew())
	b.rules.mu.Lock()
	b.rules.down = nil
	b.rules.mu.Unlock()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "one")
}

func TestRestoresAreValidatedOnceAndGoFirst(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1, Restores: 2}, interceptor.Funcs{})
	b.createBackup("running", 1, "ns1")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "running")
	b.createRestore("r1", 2, "ns1")
	b.createRestore("r2", 3, "ns2")
	b.requireEventually("r2 is dispatched", func() bool { return b.wire.hasSent("restore.run r2") })
	r2 := b.getRestore("r2")
	require.True(t, r2.Status.Phase.IsNew(), "the runner writes the next phase")
	require.Equal(t, "uid-r2", r2.Annotations[holdfast.AnnotationValidated])
	require.Equal(t, "computed", r2.Spec.ScheduleName)
	b.createBackup("b2", 4, "ns1")
	b.requirePhase(velerov1.BackupPhaseQueued, "b2")
	require.Equal(t, []string{"r2", "running"}, b.admittedNames())

	b.setPhase("running", velerov1.BackupPhaseCompleted)
	b.requireEventually("r1 goes before b2", func() bool { return b.wire.hasSent("restore.run r1") })
	b.requirePhase(velerov1.BackupPhaseQueued, "b2")
	require.Equal(t, []string{"r1", "r2"}, b.admittedNames())
	b.setRestore("r1", velerov1.RestorePhaseInProgress)
	b.setRestore("r1", velerov1.RestorePhaseCompleted)
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "b2")
}
