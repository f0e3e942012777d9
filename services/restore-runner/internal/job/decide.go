package job

import (
	"context"
	"errors"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// decide fixes how the restore ends, in the last record of all, before anything is published: whoever comes after follows it,
// so that files and phase agree whoever writes them. A reason means Failed. Where a holder before has decided, that stands.
func (j *job) decide(ctx context.Context, end outcome.Finished) error {
	if j.finished = j.records.head.Finished; j.finished != nil {
		return nil
	}
	failpoint.Hit("restore-runner/before-decision")
	end.Phase = velerov1.RestorePhaseCompleted
	switch {
	case end.Reason != "":
		end.Phase = velerov1.RestorePhaseFailed
	case j.recorder.Counts().Errors > 0:
		end.Phase = velerov1.RestorePhasePartiallyFailed
	}
	finished := j.recorder.Finish(end)
	_, err := again(ctx, j, "record how the restore ends", func() (struct{}, error) { return struct{}{}, j.flush(ctx) })
	switch {
	case errors.Is(err, claim.ErrLost):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		// The bucket is away for good: the phase is still told, by the claim alone, and no file is.
		j.log.Error("end of the restore not recorded: its files are not stored", "error", err)
		j.undecided = true
	}
	j.finished = finished
	failpoint.Hit("restore-runner/decided")
	return nil
}

// ending is how a restore ends that failed.
func (j *job) ending(failure *fatalError) *outcome.Finished {
	switch {
	case j.finished != nil:
		return j.finished
	case finalizing(j.restore.Status.Phase):
		return j.inherited(failure)
	}
	end := &outcome.Finished{Phase: velerov1.RestorePhaseFailed, Reason: failure.Error(), Time: j.cfg.Clock.Now().UnixMilli()}
	if j.recorder != nil {
		end.Counts = j.recorder.Counts()
	}
	return end
}

// confirm makes sure that the restore is still this runner's, before an effect that no record fences. Its loss ends the job at
// once, so that nothing takes it for a failure of an object.
func (j *job) confirm(ctx context.Context) error {
	err := j.cfg.Claims.Confirm(ctx, j.restore)
	if errors.Is(err, claim.ErrLost) {
		j.lose(err)
	}
	return err
}
