package cancellation

import (
	"context"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/paused"
)

// silences is for how many claim timeouts a restore that was taken is left to the runners. After
// the first one the former holder, if it still runs, has detected the loss of its claim, and
// creates nothing more; and another runner finds the claim free, replays the records and stores log
// and results.
const silences = 3

// concludeRestore ends a restore without files: only a runner can read from the records what was
// restored, and resume what is paused.
func (c *Canceller) concludeRestore(ctx context.Context, r *velerov1.Restore, mine claim.Claim, waited age) (time.Duration, error) {
	if left := silences*c.ClaimTimeout - waited.epoch; left > 0 {
		return left, nil
	}
	return 0, finish(ctx, c, restores, r, mine, func(r *velerov1.Restore) bool {
		request, asked := cancel.Requested(r)
		if !asked {
			return false
		}
		reason := request.Reason()
		if paused.Of(r) != "" {
			reason = request.ReasonBut(paused.Remark)
		}
		restores.fail(r, reason, c.now())
		return true
	})
}
