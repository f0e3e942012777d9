package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// A restore writes to no namespace that it was not admitted for: its backup may have been replaced
// since.
func TestNothingIsRestoredOutsideWhatWasAdmitted(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	restore := b.createRestore(t, false, func(r *velerov1.Restore) { r.Spec.NamespaceMapping = map[string]string{"a": "elsewhere"} })
	require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{UID: restore.UID, Kind: ledger.KindRestore, Namespace: "velero", Name: "r",
		Namespaces: []string{"a"}, Since: time.Now()}, ledger.Limits{}))
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.FailureReason, "namespaces that the restore was not admitted for: elsewhere")
	require.Empty(t, b.cluster.Requests("POST "), "nothing was created")
}

// A restore that ignores running backups has a warning about them in its results.
func TestARestoreBesideRunningBackupsWarns(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	restore := b.createRestore(t, false)
	require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{UID: "uid-b", Kind: ledger.KindBackup, Namespace: "velero", Name: "running",
		Namespaces: []string{"a"}, Since: time.Now()}, ledger.Limits{}))
	require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{UID: restore.UID, Kind: ledger.KindRestore, Namespace: "velero", Name: "r",
		Namespaces: []string{"a"}, Since: time.Now(), IgnoreBackups: true}, ledger.Limits{}))
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
	require.Equal(t, 1, r.Status.Warnings)
	require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "began beside running backups of the same namespaces, as its annotation asks: running")
}
