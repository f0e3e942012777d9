package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/validate"
)

// A job that Velero left in ReadyToStart or InProgress was run without a validation of its spec:
// hooks, resource policies and other unsupported fields were dropped silently, and a scheduleName
// beside the backupName, which Velero fills in, is no problem.
func TestJobsThatAnotherServerLeftAreValidated(t *testing.T) {
	for name, tc := range map[string]struct {
		phase, want velerov1.BackupPhase
		refused     bool
	}{
		"ready":            {velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseReadyToStart, false},
		"ready, hooks":     {velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseFailedValidation, true},
		"running":          {velerov1.BackupPhaseInProgress, velerov1.BackupPhaseInProgress, false},
		"running, hooks":   {velerov1.BackupPhaseInProgress, velerov1.BackupPhaseFailed, true},
		"waiting":          {velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperations, true},
		"finalizing":       {velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizing, true},
		"completed":        {velerov1.BackupPhaseCompleted, velerov1.BackupPhaseCompleted, true},
		"partially failed": {velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhasePartiallyFailed, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
			if tc.refused {
				b.rules.refused["b"] = "spec.hooks: not supported"
			}
			b.backup("b", 1, "ns1")
			b.set("b", tc.phase)
			require.NoError(t, b.passes(b.ledger).Pass(t.Context()))
			got := b.get("b")
			require.Equal(t, tc.want, got.Status.Phase)
			if tc.want == tc.phase {
				require.Empty(t, got.Status.ValidationErrors)
			} else {
				require.Len(t, got.Status.ValidationErrors, 1)
				require.Contains(t, got.Status.ValidationErrors[0], "spec.hooks")
			}
			adopted := tc.want == tc.phase && !tc.refused
			require.Equal(t, adopted, len(b.admitted()) == 1)
			if adopted {
				require.Equal(t, `["ns1"]`, got.Annotations[holdfast.AnnotationNamespaces])
				require.Equal(t, "computed", got.Spec.StorageLocation)
			}
			if tc.want == velerov1.BackupPhaseFailed {
				require.Contains(t, got.Status.FailureReason, "another server began it, and this one cannot go on: spec: spec.hooks")
				require.NotNil(t, got.Status.CompletionTimestamp)
			}
		})
	}
}

func TestRestoresThatAnotherServerLeftAreValidated(t *testing.T) {
	for _, refused := range []bool{true, false} {
		b := newBed(t, ledger.Limits{Restores: 1}, interceptor.Funcs{})
		if refused {
			b.rules.refused["r"] = "spec.resourceModifier: not supported"
		}
		b.restore("r", 1, "ns1")
		o := b.getRestore("r")
		o.Spec.ScheduleName = "nightly" // as Velero completes it
		require.NoError(t, b.c.Update(t.Context(), o))
		b.setRestore("r", velerov1.RestorePhaseInProgress)
		require.NoError(t, b.passes(b.ledger).Pass(t.Context()))
		got := b.getRestore("r")
		if refused {
			require.Equal(t, velerov1.RestorePhaseFailed, got.Status.Phase)
			require.Contains(t, got.Status.FailureReason, "spec.resourceModifier")
			require.Len(t, got.Status.ValidationErrors, 1)
			require.NotNil(t, got.Status.CompletionTimestamp)
			require.Empty(t, b.admitted())
			continue
		}
		require.Equal(t, velerov1.RestorePhaseInProgress, got.Status.Phase)
		require.Equal(t, []string{"r"}, b.admitted())
		require.Equal(t, "nightly", got.Spec.ScheduleName)
		require.Equal(t, "uid-r", got.Annotations[validate.AnnotationValidated])
	}
}

// What this server's runners work on is not validated again when the ledger was lost: a location
// that fails a probe would end it.
func TestOwnJobsAreNotValidatedAgain(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.rules.refused["b"], b.rules.refused["r"] = "no", "no"
	b.backup("b", 1, "ns1")
	b.set("b", velerov1.BackupPhaseInProgress)
	b.restore("r", 1, "ns2")
	b.setRestore("r", velerov1.RestorePhaseInProgress)
	for _, o := range []client.Object{b.get("b"), b.getRestore("r")} {
		require.NoError(t, claim.Set(o, claim.Claim{Holder: "runner", Epoch: 1}))
		require.NoError(t, b.c.Update(t.Context(), o))
	}
	require.NoError(t, b.passes(b.ledger).Pass(t.Context()))
	require.Equal(t, velerov1.BackupPhaseInProgress, b.phase("b"))
	require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore("r").Status.Phase)
	require.Equal(t, []string{"b", "r"}, b.admitted())
}

// A job that no process works on does not run beside others of its namespaces although its phase is
// InProgress, and delays no other job while it cannot be validated.
func TestAnAdoptedJobWaitsForThoseItOverlaps(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 2}, interceptor.Funcs{})
	require.NoError(t, b.ledger.Admit(t.Context(), ledger.Entry{UID: "uid-else", Kind: ledger.KindRestore, Namespace: "velero", Name: "else",
		Namespaces: []string{"ns1"}, Since: start}, ledger.Limits{}))
	b.restore("else", 0, "ns1")
	b.backup("b", 1, "ns1")
	b.set("b", velerov1.BackupPhaseInProgress)
	b.backup("free", 2, "ns2")
	s := b.passes(b.ledger)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"else", "free"}, b.admitted())
	require.Equal(t, velerov1.BackupPhaseInProgress, b.phase("b"))
	b.setRestore("else", velerov1.RestorePhaseCompleted)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"b", "free"}, b.admitted())
}
