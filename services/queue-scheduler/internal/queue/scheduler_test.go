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
	b.backup("one", 1, "team-*")
	b.run()
	b.reaches(velerov1.BackupPhaseReadyToStart, "one")
	o := b.get("one")
	require.Zero(t, o.Status.QueuePosition)
	require.Equal(t, "1", o.Annotations["holdfast.io/queue-sequence"])
	require.Equal(t, "computed", o.Spec.StorageLocation, "the computed spec is written at admission")
	e, found, err := b.ledger.Get(t.Context(), "uid-one")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, []string{"team-a", "team-b"}, e.Namespaces, "patterns are expanded once, here")
	b.eventually("hint", func() bool { return b.wire.sent("backup.run one") })

	b.set("one", velerov1.BackupPhaseInProgress)
	b.backup("two", 2, "team-a")
	b.reaches(velerov1.BackupPhaseQueued, "two")
	require.Equal(t, []string{"one"}, b.admitted())
	b.set("one", velerov1.BackupPhaseFinalizing)
	b.reaches(velerov1.BackupPhaseReadyToStart, "two")
	require.Equal(t, []string{"two"}, b.admitted())
}

// The example of the queue's design, letter by letter.
func TestOverlapWithRunningAndQueuedAhead(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	b.backup("b1", 1, "ns1", "ns2")
	b.run()
	b.reaches(velerov1.BackupPhaseReadyToStart, "b1")
	b.set("b1", velerov1.BackupPhaseInProgress)
	b.stop()
	b.backup("b2", 2, "ns2", "ns3", "ns5")
	b.backup("b3", 3, "ns4", "ns3")
	b.backup("b4", 4, "ns5", "ns6")
	b.backup("b5", 5, "ns8", "ns9")
	b.run()
	b.reaches(velerov1.BackupPhaseReadyToStart, "b5")
	b.set("b5", velerov1.BackupPhaseCompleted)
	b.eventually("b5 released", func() bool { return len(b.admitted()) == 1 })
	b.reaches(velerov1.BackupPhaseQueued, "b2", "b3", "b4")
	for i, name := range []string{"b2", "b3", "b4"} {
		b.eventually(name, func() bool { return b.get(name).Status.QueuePosition == i+1 })
	}
	b.set("b1", velerov1.BackupPhaseCompleted)
	b.reaches(velerov1.BackupPhaseReadyToStart, "b2")
	b.reaches(velerov1.BackupPhaseQueued, "b3", "b4")
	b.set("b2", velerov1.BackupPhaseCompleted)
	b.reaches(velerov1.BackupPhaseReadyToStart, "b3", "b4")
}

func TestAWholeClusterBackupIsNotStarved(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5}, interceptor.Funcs{})
	b.backup("small1", 1, "ns1")
	b.run()
	b.reaches(velerov1.BackupPhaseReadyToStart, "small1")
	b.backup("whole", 2)
	b.reaches(velerov1.BackupPhaseQueued, "whole")
	b.backup("small2", 3, "ns2")
	b.reaches(velerov1.BackupPhaseQueued, "small2")
	b.set("small1", velerov1.BackupPhaseCompleted)
	b.reaches(velerov1.BackupPhaseReadyToStart, "whole")
	b.reaches(velerov1.BackupPhaseQueued, "small2")
	e, _, err := b.ledger.Get(t.Context(), "uid-whole")
	require.NoError(t, err)
	require.Equal(t, []string{"*"}, e.Namespaces)
}

func TestRefusedBackups(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.rules.refused["bad"] = "no good"
	b.backup("bad", 1, "ns1")
	b.backup("later", 2, "ns1")
	b.run()
	b.reaches(velerov1.BackupPhaseFailedValidation, "bad")
	o := b.get("bad")
	require.Equal(t, []string{"spec: no good"}, o.Status.ValidationErrors)
	require.Equal(t, "computed", o.Spec.StorageLocation)
	b.eventually("it is an Event", func() bool { return slices.Contains(b.voice.all(), "bad FailedValidation: spec: no good") })
	b.reaches(velerov1.BackupPhaseReadyToStart, "later")

	b.backup("soon", 3, "ns1")
	b.reaches(velerov1.BackupPhaseQueued, "soon")
	b.rules.mu.Lock()
	b.rules.refused["soon"] = "no more"
	b.rules.mu.Unlock()
	b.set("later", velerov1.BackupPhaseCompleted) // only what may start is validated again
	b.reaches(velerov1.BackupPhaseFailedValidation, "soon")
}

// What cannot be decided stays as it is and is decided later.
func TestAnOutageDelaysAndRefusesNothing(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.rules.down = errDown
	b.wire.down = errDown
	b.backup("one", 1, "ns1")
	b.run()
	b.eventually("a pass went by", func() bool { n, err := b.ledger.NextSequences(t.Context(), 1, 0); return err == nil && n > 3 })
	require.True(t, b.get("one").Status.Phase.IsNew())
	b.rules.mu.Lock()
	b.rules.down = nil
	b.rules.mu.Unlock()
	b.reaches(velerov1.BackupPhaseReadyToStart, "one")
}

func TestDeletedJobsLeaveTheLedger(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.backup("one", 1, "ns1")
	b.run()
	b.reaches(velerov1.BackupPhaseReadyToStart, "one")
	b.backup("two", 2, "ns1")
	require.NoError(t, b.c.Delete(t.Context(), b.get("one")))
	b.reaches(velerov1.BackupPhaseReadyToStart, "two")
	require.Equal(t, []string{"two"}, b.admitted())
}

// An admission cut off between ledger and object is completed, never taken back.
func TestAnInterruptedAdmissionIsCompleted(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.backup("first", 1, "ns1")
	b.backup("second", 2, "ns1")
	b.set("first", velerov1.BackupPhaseQueued)
	b.set("second", velerov1.BackupPhaseQueued)
	require.NoError(t, b.ledger.Admit(t.Context(), ledger.Entry{
		UID: "uid-second", Kind: ledger.KindBackup, Namespace: "velero", Name: "second", Namespaces: []string{"ns1"}, Since: start,
	}, ledger.Limits{}))
	b.run()
	b.reaches(velerov1.BackupPhaseReadyToStart, "second")
	b.reaches(velerov1.BackupPhaseQueued, "first")
}

// The deletion of the ledger loses no job.
func TestALostLedgerIsRebuilt(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	b.backup("one", 1, "ns1")
	b.run()
	b.reaches(velerov1.BackupPhaseReadyToStart, "one")
	b.set("one", velerov1.BackupPhaseInProgress)
	require.NoError(t, b.c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: ledger.Name}}))
	b.eventually("readmitted", func() bool { return len(b.admitted()) == 1 })
	b.backup("two", 2, "ns1")
	b.reaches(velerov1.BackupPhaseQueued, "two")
}

func TestRestoresAreValidatedOnceAndGoFirst(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1, Restores: 2}, interceptor.Funcs{})
	b.backup("running", 1, "ns1")
	b.run()
	b.reaches(velerov1.BackupPhaseReadyToStart, "running")
	b.restore("r1", 2, "ns1")
	b.restore("r2", 3, "ns2")
	b.eventually("r2 is dispatched", func() bool { return b.wire.sent("restore.run r2") })
	r2 := b.getRestore("r2")
	require.True(t, r2.Status.Phase.IsNew(), "the runner writes the next phase")
	require.Equal(t, "uid-r2", r2.Annotations[validate.AnnotationValidated])
	require.Equal(t, "computed", r2.Spec.ScheduleName)
	b.backup("b2", 4, "ns1")
	b.reaches(velerov1.BackupPhaseQueued, "b2")
	require.Equal(t, []string{"r2", "running"}, b.admitted())

	b.set("running", velerov1.BackupPhaseCompleted)
	b.eventually("r1 goes before b2", func() bool { return b.wire.sent("restore.run r1") })
	b.reaches(velerov1.BackupPhaseQueued, "b2")
	require.Equal(t, []string{"r1", "r2"}, b.admitted())
	b.setRestore("r1", velerov1.RestorePhaseInProgress)
	b.setRestore("r1", velerov1.RestorePhaseCompleted)
	b.reaches(velerov1.BackupPhaseReadyToStart, "b2")
}

func TestRefusedRestores(t *testing.T) {
	b := newBed(t, ledger.Limits{Restores: 1}, interceptor.Funcs{})
	b.rules.refused["bad"] = "no good"
	b.restore("bad", 1, "ns1")
	b.run()
	b.eventually("refused", func() bool { return b.getRestore("bad").Status.Phase == velerov1.RestorePhaseFailedValidation })
	require.Equal(t, []string{"spec: no good"}, b.getRestore("bad").Status.ValidationErrors)
	require.Empty(t, b.admitted())
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
		b.backup(fmt.Sprintf("b%02d", i), i, fmt.Sprintf("n%d", i%4), fmt.Sprintf("n%d", (i+1)%4))
	}
	for range 3 {
		b.run()
	}
	running, done := map[types.UID][]string{}, 0
	b.eventually("all have run", func() bool {
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
				b.set(o.Name, velerov1.BackupPhaseInProgress)
			case velerov1.BackupPhaseInProgress:
				delete(running, o.UID)
				done++
				b.set(o.Name, velerov1.BackupPhaseCompleted)
			}
		}
		return done == jobs
	})
}
