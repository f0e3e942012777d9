package job_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

var terminalPhases = []velerov1.RestorePhase{
	velerov1.RestorePhaseFailedValidation, velerov1.RestorePhaseCompleted, velerov1.RestorePhasePartiallyFailed, velerov1.RestorePhaseFailed,
}

// An ended Restore is left as it is, although it still has a ledger entry and a message requests to
// run it.
func TestAnEndedRestoreIsNotRunAgain(t *testing.T) {
	for _, phase := range terminalPhases {
		t.Run(string(phase), func(t *testing.T) {
			b := newBench(t)
			b.storeTarball(t, 3)
			b.createRestore(t, true, func(r *velerov1.Restore) { r.Status.Phase, r.Status.FailureReason = phase, "an earlier end" })
			want := b.getRestore(t)
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			require.Equal(t, want, b.getRestore(t))
			require.Empty(t, b.cluster.Requests("POST /api/v1/namespaces/a/configmaps"))
		})
	}
}

// The phase becomes terminal before the runner writes its own: a runner that checked only at its
// start would overwrite it.
func TestATerminalPhaseIsNeverOverwritten(t *testing.T) {
	for _, phase := range terminalPhases {
		t.Run(string(phase), func(t *testing.T) {
			b := newBench(t)
			b.storeTarball(t, 3)
			b.createRestore(t, true)
			var want velerov1.RestoreStatus
			b.config.Client = &marked{Client: b.client, do: func() {
				ended := b.getRestore(t)
				ended.Status.Phase, ended.Status.FailureReason = phase, "ended meanwhile"
				require.NoError(t, b.client.Update(t.Context(), ended))
				want = b.getRestore(t).Status
			}}
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			require.Equal(t, want.Phase, phase, "it ended while it ran")
			require.Equal(t, want, b.getRestore(t).Status)
		})
	}
}
