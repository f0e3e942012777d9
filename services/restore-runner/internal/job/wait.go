package job

import (
	"context"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// awaitOperationsPhase gives up the claim and the ledger entry of a restore whose operations continue, in one write
// with the phase: async-operation-monitor writes the next one. What was created paused stays so.
// counts is nil where they are not known.
func (a *restoreAttempt) awaitOperationsPhase(ctx context.Context, log *operation.Log, counts *outcome.Counts) error {
	phase := velerov1.RestorePhaseWaitingForPluginOperations
	if counts != nil && counts.Errors > 0 || a.restore.Status.Phase == velerov1.RestorePhaseFinalizingPartiallyFailed {
		phase = velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed
	}
	failpoint.Hit("restore-runner/before-waiting")
	err := a.retryCall(ctx, "write that the restore waits for operations", func() error {
		return a.held.Release(ctx, func(o *velerov1.Restore) error {
			o.Status.Phase = phase
			mark.ClearWaits(o)
			if counts != nil {
				setProgress(o, *counts)
			}
			setOperationCounts(o, log)
			return nil
		})
	})
	if err != nil {
		return err
	}
	failpoint.Hit("restore-runner/waiting")
	a.log.InfoContext(ctx, "Restore waits for operations", "operations", len(log.Operations()), "phase", phase)
	return nil
}

// setOperationCounts writes into the status how many operations there are and how they ended; nil writes nothing.
func setOperationCounts(o *velerov1.Restore, log *operation.Log) {
	if log == nil {
		return
	}
	s := &o.Status
	s.RestoreItemOperationsAttempted = len(log.Operations())
	s.RestoreItemOperationsCompleted, s.RestoreItemOperationsFailed = log.Count()
}

// waitingRestore reports the phases that belong to async-operation-monitor.
func waitingRestore(p velerov1.RestorePhase) bool {
	return p == velerov1.RestorePhaseWaitingForPluginOperations || p == velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed
}
