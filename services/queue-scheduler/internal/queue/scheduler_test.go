package queue_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/validate"
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

// The example of the queue's design, letter by letter.
func TestOverlapWithRunningAndQueuedAhead(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	b.createBackup("b1", 1, "ns1", "ns2")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "b1")
	b.setPhase("b1", velerov1.BackupPhaseInProgress)
	b.stop()
	b.createBackup("b2", 2, "ns2", "ns3", "ns5")
	b.createBackup("b3", 3, "ns4", "ns3")
	b.createBackup("b4", 4, "ns5", "ns6")
	b.createBackup("b5", 5, "ns8", "ns9")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "b5")
	b.setPhase("b5", velerov1.BackupPhaseCompleted)
	b.requireEventually("b5 released", func() bool { return len(b.admittedNames()) == 1 })
	b.requirePhase(velerov1.BackupPhaseQueued, "b2", "b3", "b4")
	for i, name := range []string{"b2", "b3", "b4"} {
		b.requireEventually(name, func() bool { return b.getBackup(name).Status.QueuePosition == i+1 })
	}
	b.setPhase("b1", velerov1.BackupPhaseCompleted)
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "b2")
	b.requirePhase(velerov1.BackupPhaseQueued, "b3", "b4")
	b.setPhase("b2", velerov1.BackupPhaseCompleted)
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "b3", "b4")
}

func TestAWholeClusterBackupIsNotStarved(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5}, interceptor.Funcs{})
	b.createBackup("small1", 1, "ns1")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "small1")
	b.createBackup("whole", 2)
	b.requirePhase(velerov1.BackupPhaseQueued, "whole")
	b.createBackup("small2", 3, "ns2")
	b.requirePhase(velerov1.BackupPhaseQueued, "small2")
	b.setPhase("small1", velerov1.BackupPhaseCompleted)
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "whole")
	b.requirePhase(velerov1.BackupPhaseQueued, "small2")
	e, _, err := b.ledger.Get(t.Context(), "uid-whole")
	require.NoError(t, err)
	require.Equal(t, []string{"*"}, e.Namespaces)
}

func TestRefusedBackups(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.rules.refused["bad"] = "no good"
	b.createBackup("bad", 1, "ns1")
	b.createBackup("later", 2, "ns1")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseFailedValidation, "bad")
	o := b.getBackup("bad")
	require.Equal(t, []string{"spec: no good"}, o.Status.ValidationErrors)
	require.Equal(t, "computed", o.Spec.StorageLocation)
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

func TestDeletedJobsLeaveTheLedger(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.createBackup("one", 1, "ns1")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "one")
	b.createBackup("two", 2, "ns1")
	require.NoError(t, b.c.Delete(t.Context(), b.getBackup("one")))
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "two")
	require.Equal(t, []string{"two"}, b.admittedNames())
}

// An admission cut off between ledger and object is completed, never taken back.
func TestAnInterruptedAdmissionIsCompleted(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.createBackup("first", 1, "ns1")
	b.createBackup("second", 2, "ns1")
	b.setPhase("first", velerov1.BackupPhaseQueued)
	b.setPhase("second", velerov1.BackupPhaseQueued)
	require.NoError(t, b.ledger.Admit(t.Context(), ledger.Entry{
		UID: "uid-second", Kind: ledger.KindBackup, Namespace: "velero", Name: "second", Namespaces: []string{"ns1"}, Since: start,
	}, ledger.Limits{}))
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "second")
	b.requirePhase(velerov1.BackupPhaseQueued, "first")
}

// The deletion of the ledger loses no job.
func TestALostLedgerIsRebuilt(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	b.createBackup("one", 1, "ns1")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "one")
	b.setPhase("one", velerov1.BackupPhaseInProgress)
	require.NoError(t, b.c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: ledger.Name}}))
	b.requireEventually("readmitted", func() bool { return len(b.admittedNames()) == 1 })
	b.createBackup("two", 2, "ns1")
	b.requirePhase(velerov1.BackupPhaseQueued, "two")
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
	require.Equal(t, "uid-r2", r2.Annotations[validate.AnnotationValidated])
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

func TestRefusedRestores(t *testing.T) {
	b := newBed(t, ledger.Limits{Restores: 1}, interceptor.Funcs{})
	b.rules.refused["bad"] = "no good"
	b.createRestore("bad", 1, "ns1")
	b.runScheduler()
	b.requireEventually("refused", func() bool { return b.getRestore("bad").Status.Phase == velerov1.RestorePhaseFailedValidation })
	require.Equal(t, []string{"spec: no good"}, b.getRestore("bad").Status.ValidationErrors)
	require.Empty(t, b.admittedNames())
}

// Three schedulers at once, every write in danger of a conflict: all backups run, never two on one
// namespace, never more than the limit.
func TestReplicasTogetherNeverOverlap(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "any"}, "any", errDown)
	random := jobtest.Random(t)
	b := newBed(t, ledger.Limits{Backups: 3}, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if random.IntN(10) == 0 {
				return conflict
			}
			return c.Update(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if random.IntN(10) == 0 {
				return conflict
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	const jobs = 12
	for i := range jobs {
		b.createBackup(fmt.Sprintf("b%02d", i), i, fmt.Sprintf("n%d", i%4), fmt.Sprintf("n%d", (i+1)%4))
	}
	for range 3 {
		b.runScheduler()
	}
	running, done := map[types.UID][]string{}, 0
	b.requireEventually("all have run", func() bool {
		list := &velerov1.BackupList{}
		require.NoError(t, b.c.List(t.Context(), list))
		for i := range list.Items {
			o := &list.Items[i]
			switch o.Status.Phase {
			case velerov1.BackupPhaseReadyToStart:
				for uid, taken := range running {
					require.Empty(t, ledger.Overlap(taken, o.Spec.IncludedNamespaces), "%s beside %s", o.Name, uid)
				}
				running[o.UID] = o.Spec.IncludedNamespaces
				require.LessOrEqual(t, len(running), 3)
				b.setPhase(o.Name, velerov1.BackupPhaseInProgress)
			case velerov1.BackupPhaseInProgress:
				delete(running, o.UID)
				done++
				b.setPhase(o.Name, velerov1.BackupPhaseCompleted)
			}
		}
		return done == jobs
	})
}
