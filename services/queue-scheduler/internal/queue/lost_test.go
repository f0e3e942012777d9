package queue_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
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

// passes is a scheduler whose passes the test makes.
func (b *bed) passes(book queue.Ledger, changes ...func(*queue.Config)) *queue.Scheduler {
	config := queue.Config{
		Reader: b.c, Client: b.c, Namespace: "velero", Ledger: book, Publisher: b.wire, Validator: b.rules, Limits: b.limits,
		Metrics: counter{}, Events: b.voice, Tracer: b.tracer, Clock: clocktesting.NewFakeClock(start), Log: slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&config)
	}
	return queue.New(config)
}

func (b *bed) phase(name string) velerov1.BackupPhase { return b.get(name).Status.Phase }

func (b *bed) dropLedger() {
	b.t.Helper()
	require.NoError(b.t, b.c.Delete(b.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: ledger.Name}}))
}

// While a running job is not in the ledger again, its namespaces are not known.
func TestNothingIsAdmittedWhileALostLedgerIsIncomplete(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5}, interceptor.Funcs{})
	book := &frail{Ledger: b.ledger}
	s := b.passes(book)
	b.backup("run", 1, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.set("run", velerov1.BackupPhaseInProgress)
	b.backup("old", 2, "ns1", "ns2")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseQueued, b.phase("old"))

	b.dropLedger()
	book.failures = 2
	for range 2 {
		require.ErrorIs(t, s.Pass(t.Context()), errDown)
		require.Equal(t, velerov1.BackupPhaseQueued, b.phase("old"))
		require.Empty(t, b.admitted())
	}
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"run"}, b.admitted())
	require.Equal(t, velerov1.BackupPhaseQueued, b.phase("old"))
}

// A job that runs is entered again whatever else has been admitted; one that was only admitted
// waits its turn, and keeps others behind it.
func TestALostEntryIsMadeAgain(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	s := b.passes(b.ledger)
	for _, name := range []string{"run", "ready"} {
		b.backup(name, 1, "ns1")
		o := b.get(name)
		o.Annotations = map[string]string{holdfast.AnnotationQueueSequence: "1"}
		require.NoError(t, b.c.Update(t.Context(), o))
	}
	b.set("run", velerov1.BackupPhaseInProgress)
	b.set("ready", velerov1.BackupPhaseReadyToStart)
	b.backup("later", 2, "ns1")
	require.NoError(t, b.ledger.Admit(t.Context(), ledger.Entry{UID: "uid-else", Kind: ledger.KindRestore, Namespace: "velero", Name: "else",
		Namespaces: []string{"ns1"}, Since: start}, ledger.Limits{}))
	b.restore("else", 0, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"else", "run"}, b.admitted())
	b.setRestore("else", velerov1.RestorePhaseCompleted)
	b.set("run", velerov1.BackupPhaseCompleted)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"ready"}, b.admitted())
	require.Equal(t, velerov1.BackupPhaseQueued, b.phase("later"))
}

// Backups that wait keep their places before those that come later, though the counter went with
// the ledger.
func TestALostCounterDoesNotBeginAgain(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5}, interceptor.Funcs{})
	s := b.passes(b.ledger)
	b.backup("run", 1, "ns1")
	require.NoError(t, s.Pass(t.Context()))
	b.set("run", velerov1.BackupPhaseInProgress)
	b.backup("old", 2, "ns1", "ns2")
	require.NoError(t, s.Pass(t.Context()))

	b.dropLedger()
	b.backup("newer", 3, "ns2")
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseQueued, b.phase("newer"), "it may not pass old, which it overlaps")
	require.Greater(t, number(b.get("newer")), number(b.get("old")))
}

// The object of an entry is gone, and another one has its name: the entry would stay as long as
// that one runs, and keep others from the namespaces of a job that is over.
func TestAnEntryWhoseNameBelongsToAnotherObjectIsReleased(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5, Restores: 5}, interceptor.Funcs{})
	s := b.passes(b.ledger)
	enter := func(kind, name string) {
		require.NoError(t, b.ledger.Admit(t.Context(), ledger.Entry{UID: types.UID("uid-of-the-last-" + name), Kind: kind, Namespace: "velero", Name: name,
			Namespaces: []string{name}, Since: start}, ledger.Limits{}))
	}
	enter(ledger.KindBackup, "ns1")
	enter(ledger.KindRestore, "ns2")
	b.backup("ns1", 1, "ns1")
	b.restore("ns2", 1, "ns2")
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
	b.backup("one", 1, "ns1")
	b.set("one", velerov1.BackupPhaseQueued)
	require.NoError(t, b.ledger.Admit(t.Context(), ledger.Entry{UID: "uid-one", Kind: ledger.KindBackup, Namespace: "velero", Name: "one",
		Namespaces: []string{"ns1"}, Since: start}, ledger.Limits{}))
	_ = b.passes(&fading{b.ledger, b}).Pass(t.Context())
	require.Equal(t, velerov1.BackupPhaseQueued, b.phase("one"))
	require.NoError(t, b.passes(b.ledger).Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseReadyToStart, b.phase("one"))
	require.Equal(t, []string{"one"}, b.admitted())
}
