package job

import (
	"context"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// awaitOperations gives the claim and the place in the queue of a backup up whose operations continue, in one
// write with the phase: async-operation-monitor writes the next one.
func (a *attempt) awaitOperations(ctx context.Context, w *finalize.WaitingError) error {
	phase := velerov1.BackupPhaseWaitingForPluginOperations
	c := w.Composition
	if c.Errors > 0 || failingPhase(a.held.Object.Status.Phase) {
		phase = velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
	}
	failpoint.Hit("backup-runner/before-waiting")
	err := a.callLoop(a.held.Log).Do(ctx, "write that the backup waits for operations", func() error {
		return a.held.Release(ctx, func(b *velerov1.Backup) error {
			s := &b.Status
			s.Phase = phase
			s.Warnings, s.Errors = c.Warnings, c.Errors
			s.Progress = &velerov1.BackupProgress{TotalItems: c.Items, ItemsBackedUp: c.Items}
			s.BackupItemOperationsAttempted = w.Attempted
			s.BackupItemOperationsCompleted, s.BackupItemOperationsFailed = w.Completed, w.Failed
			return nil
		})
	})
	if err != nil {
		return err
	}
	failpoint.Hit("backup-runner/waiting")
	a.held.Log.InfoContext(ctx, "Backup waits for operations", "operations", w.Attempted, "completed", w.Completed, "failed", w.Failed)
	return nil
}

// failingPhase reports the phases of a backup that has an error already.
func failingPhase(p velerov1.BackupPhase) bool {
	return p == velerov1.BackupPhaseFinalizingPartiallyFailed || p == velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
}
