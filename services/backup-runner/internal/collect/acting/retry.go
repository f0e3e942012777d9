package acting

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// retries is how often a call is retried whose process died.
const retries = 2

// callRetryable makes a call that may be made again. One that may have failed because of another that
// its process was answering is, one such call at a time, so that it costs the object that is to
// blame, and others only where several are. Only calls that are retried wait for that.
func (p *Pool) callRetryable(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	result, err := p.executeCall(ctx, a, o, b)
	for range retries {
		if err != nil && p.Stop.Requested() {
			return result, &fatalError{plan.ErrStopped} // perhaps that is why, and the next holder calls again
		}
		if err == nil || !p.Concurrent || !p.isProcessDeath(ctx, err) {
			return result, err
		}
		result, err = p.retryAlone(ctx, a, o, b)
	}
	return result, err
}

// isProcessDeath reports whether a call failed because its process died, of it or of another call.
func (p *Pool) isProcessDeath(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !p.Stop.Requested() && p.IsProcessCrash != nil && p.IsProcessCrash(err)
}

// retryAlone makes a call beside none that is retried.
func (p *Pool) retryAlone(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	select {
	case p.retrying <- struct{}{}:
	case <-ctx.Done():
		return action.BackupResult{}, context.Cause(ctx)
	}
	defer func() { <-p.retrying }()
	return p.executeCall(ctx, a, o, b)
}
