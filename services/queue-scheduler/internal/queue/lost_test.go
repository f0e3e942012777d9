package queue_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// frail is a ledger that fails to enter a running job again some times.
type frail struct {
	*ledger.Ledger
	failures int
}

func (f *frail) Readmit(ctx context.Context, e ledger.Entry) error {
	if f.failures--; f.failures >= 0 {
		return errDown
	}
	return f.Ledger.Readmit(ctx, e)
}

func (b *bed) backupPhase(name string) velerov1.BackupPhase { return b.getBackup(name).Status.Phase }

func (b *bed) dropLedger() {
	b.t.Helper()
	require.NoError(b.t, b.c.Delete(b.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: ledger.Name}}))
}

// While a running job is not in the ledger again, its namespaces are not known.
func TestNothingIsAdmittedWhileALostLedgerIsIncomplete(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5}, interceptor.Funcs{})
	book := &frail{Ledger: b.ledger}
	s := b.newScheduler(withLedger(book))
	b.createBackup("run", 1, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.setPhase("run", velerov1.BackupPhaseInProgress)
	b.createBackup("old", 2, "ns1", "ns2")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("old"))

	b.dropLedger()
	book.failures = 2
	for range 2 {
		require.ErrorIs(t, s.Pass(t.Context()), errDown)
		require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("old"))
		require.Empty(t, b.admittedNames())
	}
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"run"}, b.admittedNames())
	require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("old"))
}

// A job that runs is entered again whatever else has been admitted; one that was only admitted
// waits its turn, and keeps others behind it.
func TestALostEntryIsMadeAgain(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	s := b.newScheduler()
	for _, name := range []string{"run", "ready"} {
		b.createBackup(name, 1, "ns1")
		o := b.getBackup(name)
		o.Annotations = map[string]string{holdfast.AnnotationQueueSequence: "1"}
		require.NoError(t, b.c.Update(t.Context(), o))
	}
	b.setPhase("run", velerov1.BackupPhaseInProgress)
	b.setPhase("ready", velerov1.BackupPhaseReadyToStart)
	b.createBackup("later", 2, "ns1")
	require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{UID: "uid-else", Kind: ledger.KindRestore, Namespace: "velero", Name: "else",
		Namespaces: []string{"ns1"}, Since: start}, ledger.Limits{}))
	b.createRestore("else", 0, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"else", "run"}, b.admittedNames())
	b.setRestore("else", velerov1.RestorePhaseCompleted)
	b.setPhase("run", velerov1.BackupPhaseCompleted)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"ready"}, b.admittedNames())
	require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("later"))
}

// Backups that wait keep their places before those that come later, though the counter went with
// the ledger.
func TestALostCounterDoesNotBeginAgain(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5}, interceptor.Funcs{})
	s := b.newScheduler()
	b.createBackup("run", 1, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.setPhase("run", velerov1.BackupPhaseInProgress)
	b.createBackup("old", 2, "ns1", "ns2")
	require.NoError(t, s.Pass(t.Context()))

	b.dropLedger()
	b.createBackup("newer", 3, "ns2")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("newer"), "it may not pass old, which it overlaps")
	require.Greater(t, sequenceOf(b.getBackup("newer")), sequenceOf(b.getBackup("old")))
}

// The object of an entry is gone, and another one has its name: the entry would stay as long as
// that one runs, and keep others from the namespaces of a job that is over.
func TestAnEntryWhoseNameBelongsToAnotherObjectIsReleased(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5, Restores: 5}, interceptor.Funcs{})
	s := b.newScheduler()
	enter := func(kind, name string) {
		require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{UID: types.UID("uid-of-the-last-" + name), Kind: kind, Namespace: "velero", Name: name,
			Namespaces: []string{name}, Since: start}, ledger.Limits{}))
	}
	enter(ledger.KindBackup, "ns1")
	enter(ledger.KindRestore, "ns2")
	b.createBackup("ns1", 1, "ns1")
	b.createRestore("ns2", 1, "ns2")
	require.NoError(t, s.Pass(t.Context()))
	entries, err := b.ledger.List(t.Context())
	require.NoError(t, err)
	for _, e := range entries {
		require.NotContains(t, e.UID, "uid-of-the-last-", e.Name)
	}
}

// fading is a ledger that is deleted after it was listed.
type fading struct {
	*ledger.Ledger
	b *bed
}

func (f *fading) List(ctx context.Context) ([]ledger.Entry, error) {
	entries, err := f.Ledger.List(ctx)
	if len(entries) > 0 {
		f.b.dropLedger()
	}
	return entries, err
}

// What became ReadyToStart without an entry would start beside a job that overlaps it.
func TestABackupWithoutAnEntryDoesNotBecomeReady(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5}, interceptor.Funcs{})
	b.createBackup("one", 1, "ns1")
	b.setPhase("one", velerov1.BackupPhaseQueued)
	require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{UID: "uid-one", Kind: ledger.KindBackup, Namespace: "velero", Name: "one",
		Namespaces: []string{"ns1"}, Since: start}, ledger.Limits{}))
	_ = b.newScheduler(withLedger(&fading{b.ledger, b})).Pass(t.Context())
	require.Equal(t, velerov1.BackupPhaseQueued, b.backupPhase("one"))
	require.NoError(t, b.newScheduler().Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.backupPhase("one"))
	require.Equal(t, []string{"one"}, b.admittedNames())
}
