package job

import (
	"context"
	"errors"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/podhook"
)

// restoreEnding decides how a restore ends, and publishes its files.
type restoreEnding struct {
	*session
	inputs *restoreInputs
	// undecided: how the restore ends could not be recorded, so that no file may be stored.
	undecided bool
}

// recordEnd writes the outcome of the restore as its last record, before any file is uploaded: every
// later holder follows it, so that files and phase agree. A reason means Failed. The decision of an
// earlier holder is kept.
func (e *restoreEnding) recordEnd(ctx context.Context, end outcome.Finished) (*outcome.Finished, error) {
	in := e.inputs
	if in.records.head.Finished != nil {
		return in.records.head.Finished, nil
	}
	failpoint.Hit("restore-runner/before-decision")
	e.noteOperations()
	podhook.Abandon(in.recorder, "the restore ended: "+end.Reason)
	end.Phase = velerov1.RestorePhaseCompleted
	switch {
	case end.Reason != "":
		end.Phase = velerov1.RestorePhaseFailed
	case in.recorder.Counts().Errors > 0:
		end.Phase = velerov1.RestorePhasePartiallyFailed
	}
	finished := in.recorder.Finish(end)
	_, err := retryStoreCall(ctx, e.storeRetries(), "record how the restore ends", func() (struct{}, error) {
		return struct{}{}, in.records.flushRecorder(ctx, in.recorder)
	})
	switch {
	case errors.Is(err, claim.ErrLost):
		return nil, err
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		// The bucket stays away: the phase is still written, by the claim alone, and no file is.
		e.log.ErrorContext(ctx, "end of the restore not recorded; its files are not stored", "error", err)
		e.undecided = true
	}
	failpoint.Hit("restore-runner/decided")
	return finished, nil
}

// explainFailure leaves the log of a restore that ends as Failed in the bucket, and all files of one that
// was cancelled, and returns how it ends, nil if that is not decided. Not much time is spent on it:
// the reason may be that the bucket is away, and who cancels waits.
func (e *restoreEnding) explainFailure(ctx context.Context, failure error) *outcome.Finished {
	var fatal *fatalError
	if ctx.Err() != nil || !errors.As(failure, &fatal) || e.inputs.records == nil {
		return nil
	}
	end, limit := outcome.Finished{Reason: e.failureReason(fatal), Cancelled: cancelRequestOf(fatal) != nil}, explainLimit
	if end.Cancelled {
		limit = cancelledLimit
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	finished, err := e.recordEnd(ctx, end)
	if err == nil {
		err = e.publishFiles(ctx, finished)
	}
	if err != nil {
		e.log.WarnContext(ctx, "log of the failed restore not stored", "error", err)
	}
	return finished
}
