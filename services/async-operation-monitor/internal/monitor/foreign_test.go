package monitor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

const (
	waiting   = velerov1.BackupPhaseWaitingForPluginOperations
	waitingPF = velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
	finalPF   = velerov1.BackupPhaseFinalizingPartiallyFailed
)

// Every phase but the two that wait is another service's. A job that another server left waiting is a
// runner's, which ends it: its operations are not followed.
func TestOtherJobsAreLeftAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		phases  []velerov1.BackupPhase
		foreign bool
	}{
		"other phases": {phases: []velerov1.BackupPhase{
			"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseFailedValidation,
			velerov1.BackupPhaseInProgress, velerov1.BackupPhaseFinalizing, finalPF, velerov1.BackupPhaseCompleted,
			velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhaseFailed, velerov1.BackupPhaseDeleting,
		}},
		"of another server": {phases: []velerov1.BackupPhase{waiting, waitingPF}, foreign: true},
	} {
		for _, phase := range tc.phases {
			t.Run(name+"/"+string(phase), func(t *testing.T) {
				inBubble(t, func(b *bed) {
					o, r := b.readObject(operation.KindBackup, "b").(*velerov1.Backup), b.readObject(operation.KindRestore, "r").(*velerov1.Restore)
					o.Status.Phase, r.Status.Phase = phase, velerov1.RestorePhase(phase)
					for kind, job := range map[string]client.Object{operation.KindBackup: o, operation.KindRestore: r} {
						if tc.foreign {
							job.SetAnnotations(nil)
						}
						b.sealOperations(kind, job, "one")
						require.NoError(b, b.api.Create(b.Context(), job))
					}
					b.startReplica()
					b.advanceClock(time.Minute)
					require.Zero(b, b.plugins.countCalls("one"))
					for _, job := range []client.Object{o, r} {
						before := job.GetResourceVersion()
						require.NoError(b, b.api.Get(b.Context(), client.ObjectKeyFromObject(job), job))
						require.Equal(b, before, job.GetResourceVersion())
					}
				})
			})
		}
	}
}
