package queue_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// restoreOf creates a restore without a filter of a backup that holds some namespaces.
func (b *bed) restoreOf(name string, order int, held string, annotations map[string]string) {
	b.t.Helper()
	r := &velerov1.Restore{ObjectMeta: objectMeta(name, order), Spec: velerov1.RestoreSpec{BackupName: "of-" + held}}
	r.Annotations = annotations
	require.NoError(b.t, b.c.Create(b.t.Context(), r))
}

func (b *bed) requireStarted(name string) {
	b.t.Helper()
	b.requireEventually(name+" is admitted", func() bool { return b.wire.hasSent("restore.run " + name) })
	o := b.getRestore(name)
	require.NoError(b.t, claim.Set(o, claim.Claim{Owner: "runner", Epoch: 1}))
	require.NoError(b.t, b.c.Update(b.t.Context(), o))
	b.setRestore(name, velerov1.RestorePhaseInProgress)
}

// awaitPassEnd returns when a pass that began after now has come to its end: it queues a backup that
// nothing else has to do with.
func (b *bed) awaitPassEnd(marker string, order int) {
	b.t.Helper()
	b.createBackup(marker, order, "marker")
	b.requireEventually("a pass went by", func() bool { return !b.getBackup(marker).Status.Phase.IsNew() })
	require.NoError(b.t, b.c.Delete(b.t.Context(), b.getBackup(marker)))
	b.createBackup(marker+"-2", order, "marker")
	b.requireEventually("another one went by", func() bool { return !b.getBackup(marker + "-2").Status.Phase.IsNew() })
}

func ignoreBackups() map[string]string {
	return map[string]string{holdfast.AnnotationIgnoreRunning: "true"}
}

// An overlapping restore that waits longer goes first; others pass.
func TestRestoresWaitInOrder(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1, Restores: 3}, interceptor.Funcs{})
	b.createBackup("running", 1, "ns1")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "running")
	b.createRestore("r1", 2, "ns1", "ns2")
	b.createRestore("r2", 3, "ns2", "ns3")
	b.createRestore("r3", 4, "ns4")
	b.requireStarted("r3")
	b.awaitPassEnd("m", 5)
	require.Equal(t, []string{"r3", "running"}, b.admittedNames(), "r2 does not pass r1, which waits for ns1")

	b.setPhase("running", velerov1.BackupPhaseCompleted)
	b.requireStarted("r1")
	require.NotContains(t, b.admittedNames(), "r2")
	b.setRestore("r1", velerov1.RestorePhaseCompleted)
	b.requireStarted("r2")
}

func TestRestoresRunAtOnceUpToTheLimit(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1, Restores: 2}, interceptor.Funcs{})
	for i, name := range []string{"r1", "r2", "r3"} {
		b.createRestore(name, i, "ns"+name)
	}
	b.runScheduler()
	b.requireStarted("r1")
	b.requireStarted("r2")
	b.awaitPassEnd("m", 5)
	require.NotContains(t, b.admittedNames(), "r3")
	b.setRestore("r2", velerov1.RestorePhaseCompleted)
	b.requireStarted("r3")
}

// What a restore writes to is found out once, when it is validated, and delays no other job.
func TestTargetsOfARestoreAreNoted(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5, Restores: 5}, interceptor.Funcs{})
	b.createBackup("b1", 1, "ns1")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "b1")
	b.restoreOf("r1", 2, "ns2,ns3", map[string]string{holdfast.AnnotationNamespaces: `["made-up"]`})
	b.requireStarted("r1")
	require.JSONEq(t, `["ns2","ns3"]`, b.getRestore("r1").Annotations[holdfast.AnnotationNamespaces])
	e, _, err := b.ledger.Get(t.Context(), "uid-r1")
	require.NoError(t, err)
	require.Equal(t, []string{"ns2", "ns3"}, e.Namespaces)
	b.createBackup("b4", 3, "ns4")
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "b4")
	b.createBackup("b3", 4, "ns3")
	b.awaitPassEnd("m", 5)
	require.Equal(t, velerov1.BackupPhaseQueued, b.getBackup("b3").Status.Phase)

	b.restoreOf("r2", 5, "", nil) // of a backup that cannot be read
	b.requireEventually("r2 is validated", func() bool { return b.getRestore("r2").Annotations[holdfast.AnnotationNamespaces] == `["*"]` })
	b.awaitPassEnd("m2", 6)
	require.NotContains(t, b.admittedNames(), "r2", "it may hold anything")
}

// A restore that ignores backups starts beside those that run, never beside a restore.
func TestARestoreIgnoresRunningBackups(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2, Restores: 3}, interceptor.Funcs{})
	b.createBackup("running", 1, "ns1")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "running")
	b.restoreOf("now", 2, "ns1", ignoreBackups())
	b.requireStarted("now")
	e, _, err := b.ledger.Get(t.Context(), "uid-now")
	require.NoError(t, err)
	require.True(t, e.IgnoreBackups)
	require.Equal(t, []string{"running"}, e.Beside)

	b.restoreOf("now-2", 3, "ns1", ignoreBackups())
	b.createBackup("next", 4, "ns1")
	b.setPhase("running", velerov1.BackupPhaseCompleted)
	b.awaitPassEnd("m", 5)
	require.NotContains(t, b.admittedNames(), "now-2", "a restore is never ignored")
	require.Equal(t, velerov1.BackupPhaseQueued, b.getBackup("next").Status.Phase, "no backup starts beside it")
	b.setRestore("now", velerov1.RestorePhaseCompleted)
	b.requireStarted("now-2")
	b.setRestore("now-2", velerov1.RestorePhaseCompleted)
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "next")
}

// A lost ledger is rebuilt with whether restores ignore backups, and what they were admitted for.
func TestARunningRestoreIsReadmittedAsItWas(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2, Restores: 1}, interceptor.Funcs{})
	b.createBackup("running", 1, "ns1")
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "running")
	b.restoreOf("now", 2, "ns1,ns2", ignoreBackups())
	b.requireStarted("now")
	b.stop()
	require.NoError(t, b.ledger.Release(t.Context(), "uid-now"))
	require.NoError(t, b.ledger.Release(t.Context(), "uid-running"))
	b.runScheduler()
	b.requireEventually("both are back", func() bool { return len(b.admittedNames()) == 2 })
	e, _, err := b.ledger.Get(t.Context(), "uid-now")
	require.NoError(t, err)
	require.Equal(t, []string{"ns1", "ns2"}, e.Namespaces)
	require.True(t, e.IgnoreBackups)
}

// Restores that wait cost no reads of their own: what the pass read is enough.
func TestWaitingRestoresReadNothing(t *testing.T) {
	reads := 0
	b := newBed(t, ledger.Limits{Restores: 1}, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*velerov1.Restore); ok {
				reads++
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	for i, name := range []string{"r1", "r2", "r3", "r4"} {
		b.createRestore(name, i, "ns1")
	}
	s := b.newScheduler()
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"r1"}, b.admittedNames())
	reads = 0
	require.NoError(t, s.Pass(t.Context()))
	require.Zero(t, reads, "what the pass listed is enough")
}

// A restore is validated once and may wait for hours: its backup can be on its way out when its
// turn comes.
func TestARestoreThatWaitedIsRefusedIfItsBackupIsBeingDeleted(t *testing.T) {
	b := newBed(t, ledger.Limits{Restores: 1}, interceptor.Funcs{})
	b.restoreOf("r1", 1, "ns1", nil)
	b.restoreOf("r2", 2, "ns2", nil)
	s := b.newScheduler()
	require.NoError(t, s.Pass(t.Context()))
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"r1"}, b.admittedNames())

	b.rules.refused["of-ns2"] = "is being deleted"
	b.setRestore("r1", velerov1.RestorePhaseCompleted)
	require.NoError(t, s.Pass(t.Context()))
	require.NoError(t, s.Pass(t.Context()))
	require.Empty(t, b.admittedNames())
	r := &velerov1.Restore{}
	require.NoError(t, b.c.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "r2"}, r))
	require.Equal(t, velerov1.RestorePhaseFailedValidation, r.Status.Phase)
	require.Equal(t, []string{"spec: is being deleted"}, r.Status.ValidationErrors)
}

// A changed limit counts for restores too.
func TestRestoresFollowTheLiveLimit(t *testing.T) {
	b := newBed(t, ledger.Limits{Restores: 1}, interceptor.Funcs{})
	b.createRestore("r1", 1, "ns1")
	b.createRestore("r2", 2, "ns2")
	s := b.newScheduler()
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"r1"}, b.admittedNames())
	b.limits.Restores = 2
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"r1", "r2"}, b.admittedNames())
}
