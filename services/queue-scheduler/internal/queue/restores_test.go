package queue_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// restoreOf creates a restore without a filter of a backup that holds some namespaces.
func (b *bed) restoreOf(name string, order int, held string, annotations map[string]string) {
	b.t.Helper()
	r := &velerov1.Restore{ObjectMeta: objectMeta(name, order), Spec: velerov1.RestoreSpec{BackupName: "of-" + held}}
	r.Annotations = annotations
	require.NoError(b.t, b.c.Create(b.t.Context(), r))
}

// startRestore does what a runner does that claims a restore.
func (b *bed) startRestore(name string) {
	b.t.Helper()
	require.Contains(b.t, b.admittedNames(), name)
	require.True(b.t, b.wire.hasSent("restore.run "+name))
	o := b.getRestore(name)
	require.NoError(b.t, claim.Set(o, claim.Claim{Owner: "runner", Epoch: 1}))
	require.NoError(b.t, b.c.Update(b.t.Context(), o))
	b.setRestore(name, velerov1.RestorePhaseInProgress)
}

// passWith makes a pass after which exactly these jobs are admitted.
func (b *bed) passWith(s *queue.Scheduler, admitted ...string) {
	b.t.Helper()
	require.NoError(b.t, s.Pass(b.t.Context()))
	require.Equal(b.t, admitted, b.admittedNames())
}

func ignoreBackups() map[string]string {
	return map[string]string{holdfast.AnnotationIgnoreRunning: "true"}
}

// An overlapping restore that waits longer goes first; others pass.
func TestRestoresWaitInOrder(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1, Restores: 3}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createBackup("running", 1, "ns1")
	b.passWith(s, "running")
	b.createRestore("r1", 2, "ns1", "ns2")
	b.createRestore("r2", 3, "ns2", "ns3")
	b.createRestore("r3", 4, "ns4")
	b.passWith(s, "r3", "running") // r2 does not pass r1, which waits for ns1
	b.startRestore("r3")
	b.setPhase("running", velerov1.BackupPhaseCompleted)
	b.passWith(s, "r1", "r3")
	b.startRestore("r1")
	b.setRestore("r1", velerov1.RestorePhaseCompleted)
	b.passWith(s, "r2", "r3")
}

// A runner plans it without a place; nothing waits for it.
func TestADryRunIsNotQueued(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5, Restores: 5}, interceptor.Funcs{})
	s := b.newScheduler()
	b.restoreOf("dry", 1, "ns1", map[string]string{holdfast.AnnotationDryRun: "true"})
	b.createRestore("real", 2, "ns1")
	b.passWith(s, "real")
	require.Empty(t, b.getRestore("dry").Status.Phase)
}

// A runner plans it by what validation computed; nothing waits for it, and a copy of it is validated again.
func TestADryRunOfABackupIsCompletedAndNotQueued(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	s := b.newScheduler()
	for order, name := range []string{"dry", "wrong", "copy"} {
		o := &velerov1.Backup{ObjectMeta: objectMeta(name, order), Spec: velerov1.BackupSpec{IncludedNamespaces: []string{"ns1"}}}
		o.Annotations = map[string]string{holdfast.AnnotationDryRun: "true", holdfast.AnnotationValidated: "of-another"}
		require.NoError(t, b.c.Create(t.Context(), o))
	}
	b.rules.refused["wrong"] = "no such field"
	b.createBackup("real", 9, "ns1")
	b.passWith(s, "real")
	for _, name := range []string{"dry", "copy"} {
		o := b.getBackup(name)
		require.True(t, mark.IsDryRun(o, o.Status.Phase.IsNew()) && mark.IsValidated(o))
		require.Equal(t, "computed", o.Spec.StorageLocation)
		require.Equal(t, `["ns1"]`, o.Annotations[holdfast.AnnotationNamespaces])
		require.Len(t, o.Status.ValidationErrors, 1)
		require.Contains(t, o.Status.ValidationErrors[0], "it would wait: backup real")
	}
	require.Equal(t, velerov1.BackupPhaseFailedValidation, b.getBackup("wrong").Status.Phase)
	require.Equal(t, []string{"spec: no such field"}, b.getBackup("wrong").Status.ValidationErrors)
	before := b.getBackup("dry").ResourceVersion
	b.passWith(s, "real")
	require.Equal(t, before, b.getBackup("dry").ResourceVersion, "it is completed once")
	require.Equal(t, map[string]int{"real": 0}, queuePositions(t, s))
}

// What a restore writes to is found out once, when it is validated, and delays no other job.
func TestTargetsOfARestoreAreNoted(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5, Restores: 5}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createBackup("b1", 1, "ns1")
	b.restoreOf("r1", 2, "ns2,ns3", map[string]string{holdfast.AnnotationNamespaces: `["made-up"]`})
	b.createBackup("b4", 3, "ns4")
	b.createBackup("b3", 4, "ns3")
	b.passWith(s, "b1", "b4", "r1")
	require.JSONEq(t, `["ns2","ns3"]`, b.getRestore("r1").Annotations[holdfast.AnnotationNamespaces])
	e, _, err := b.ledger.Get(t.Context(), "uid-r1")
	require.NoError(t, err)
	require.Equal(t, []string{"ns2", "ns3"}, e.Namespaces)

	b.restoreOf("r2", 5, "", nil)   // of a backup that cannot be read
	b.passWith(s, "b1", "b4", "r1") // it may hold anything
	require.Equal(t, `["*"]`, b.getRestore("r2").Annotations[holdfast.AnnotationNamespaces])
}

// A restore that ignores backups starts beside those that run, never beside a restore. A lost ledger
// is rebuilt with that, and with what restores were admitted for.
func TestARestoreIgnoresRunningBackups(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2, Restores: 3}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createBackup("running", 1, "ns1")
	b.passWith(s, "running")
	b.setPhase("running", velerov1.BackupPhaseInProgress)
	b.restoreOf("now", 2, "ns1,ns2", ignoreBackups())
	b.passWith(s, "now", "running")
	b.startRestore("now")
	e, _, err := b.ledger.Get(t.Context(), "uid-now")
	require.NoError(t, err)
	require.True(t, e.IgnoreBackups)
	require.Equal(t, []string{"running"}, e.Beside)
	b.dropLedger()
	b.passWith(s, "now", "running")
	e, _, err = b.ledger.Get(t.Context(), "uid-now")
	require.NoError(t, err)
	require.Equal(t, []string{"ns1", "ns2"}, e.Namespaces)
	require.True(t, e.IgnoreBackups)

	b.restoreOf("now-2", 3, "ns1", ignoreBackups())
	b.createBackup("next", 4, "ns1")
	b.setPhase("running", velerov1.BackupPhaseCompleted)
	b.passWith(s, "now") // a restore is never ignored, and no backup starts beside it
	b.setRestore("now", velerov1.RestorePhaseCompleted)
	b.passWith(s, "now-2")
	b.startRestore("now-2")
	b.setRestore("now-2", velerov1.RestorePhaseCompleted)
	b.passWith(s, "next")
}

// A cache that is behind shows a restore as it was before another replica validated it. The computed
// spec, which is no valid input, is not judged.
func TestARestoreThatAnotherReplicaValidatedIsNotJudgedAgain(t *testing.T) {
	b := newBed(t, ledger.Limits{Restores: 1}, interceptor.Funcs{})
	b.createRestore("r", 1, "ns1")
	old := &velerov1.RestoreList{}
	require.NoError(t, b.c.List(t.Context(), old))
	b.passWith(b.newScheduler(), "r")
	b.dropLedger()
	behind := interceptor.NewClient(b.c, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if into, ok := list.(*velerov1.RestoreList); ok {
			old.DeepCopyInto(into)
			return nil
		}
		return c.List(ctx, list, opts...)
	}})
	b.passWith(b.newScheduler(func(c *queue.Config) { c.Jobs = behind }), "r")
	require.True(t, b.getRestore("r").Status.Phase.IsNew())
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

// markWaits does what a runner does that tells what its restore waits for.
func (b *bed) markWaits(name string, waits mark.Waits) {
	b.t.Helper()
	o := b.getRestore(name)
	require.NoError(b.t, mark.SetWaits(o, waits))
	require.NoError(b.t, b.c.Update(b.t.Context(), o))
}

// A restore whose Pod never started kept all others, of other namespaces too, waiting, and backups of its own.
func TestAnIdleRestoreHoldsUpRestoresOfItsNamespacesAlone(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2, Restores: 1}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createRestore("idle", 1, "ns1")
	b.passWith(s, "idle")
	b.startRestore("idle")
	b.createRestore("same", 2, "ns1", "ns2")
	b.createRestore("other", 3, "ns3")
	b.createBackup("backup", 4, "ns1")
	b.passWith(s, "idle")
	require.Equal(t, []string{"all 1 places for restores are taken, by idle (since 2026-05-06T07:00:00Z)"}, waitTexts(b.getRestore("other")))

	b.markWaits("idle", mark.Waits{Idle: true})
	b.passWith(s, "idle", "other")
	require.Equal(t, []string{"restore idle is running on namespaces ns1 (since 2026-05-06T07:00:00Z)"}, waitTexts(b.getRestore("same")))
	b.dropLedger()
	b.setRestore("same", velerov1.RestorePhaseFailed) // it went before the backup
	b.passWith(s, "backup", "idle", "other")
}

func waitTexts(r *velerov1.Restore) []string {
	waits := mark.WaitsOf(r)
	return waits.Texts()
}

// Scripts create one restore after the other and rely on Velero's order: what a later one depends on is there.
func TestLaterRestoresWaitForWhatTheyMayDependOn(t *testing.T) {
	b := newBed(t, ledger.Limits{Restores: 4}, interceptor.Funcs{})
	s := b.newScheduler()
	none := false
	for i, spec := range []velerov1.RestoreSpec{
		{BackupName: "x", IncludedNamespaces: []string{"ns1"}}, // a part of a backup has no cluster-scoped objects
		{BackupName: "of-ns2", IncludeClusterResources: &none}, // nor has this one
		{BackupName: "of-ns3"},                                 // this one may
		{BackupName: "x", IncludedNamespaces: []string{"ns4"}}, {BackupName: "x", IncludedNamespaces: []string{"ns5"}},
	} {
		require.NoError(t, b.c.Create(t.Context(), &velerov1.Restore{ObjectMeta: objectMeta(fmt.Sprint("r", i+1), i+1), Spec: spec}))
	}
	require.NoError(t, s.Pass(t.Context())) // validates
	b.passWith(s, "r1", "r2", "r3")
	require.Contains(t, waitTexts(b.getRestore("r4"))[0], "restore r3 is older, and not all of its definitions and cluster-scoped objects have an outcome yet")
	b.startRestore("r3")
	b.passWith(s, "r1", "r2", "r3")
	b.markWaits("r3", mark.Waits{SharedDone: true})
	b.passWith(s, "r1", "r2", "r3", "r4")
	b.setRestore("r1", velerov1.RestorePhaseCompleted)
	b.passWith(s, "r2", "r3", "r4", "r5")
}

// Of two that were created within one second the names decide, but for one that runs already.
func TestARestoreWaitsForOneOfItsSecondThatRuns(t *testing.T) {
	b := newBed(t, ledger.Limits{Restores: 4}, interceptor.Funcs{})
	s := b.newScheduler()
	require.NoError(t, b.c.Create(t.Context(), &velerov1.Restore{ObjectMeta: objectMeta("infra", 1), Spec: velerov1.RestoreSpec{BackupName: "of-ns3"}}))
	require.NoError(t, s.Pass(t.Context())) // validates
	b.passWith(s, "infra")
	require.NoError(t, b.c.Create(t.Context(), &velerov1.Restore{ObjectMeta: objectMeta("apps", 1), Spec: velerov1.RestoreSpec{BackupName: "x", IncludedNamespaces: []string{"ns1"}}}))
	require.NoError(t, s.Pass(t.Context()))
	b.passWith(s, "infra")
	b.startRestore("infra")
	b.passWith(s, "infra")
	b.markWaits("infra", mark.Waits{SharedDone: true})
	b.passWith(s, "apps", "infra")
}
