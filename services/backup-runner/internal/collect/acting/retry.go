package acting

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/stop"
)

// retries is how often a call is retried whose process died.
const retries = 2

// retryable makes a call that may be made again. One that may have failed because of another that
// its process was answering is, one such call at a time, so that it costs the object that is to
// blame, and others only where several are. Only calls that are retried wait for that.
func (p *Pool) retryable(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	result, err := p.execute(ctx, a, o, b)
	for range retries {
		if err != nil && p.Stop.Requested() {
			return result, &fatalError{stop.ErrStopped} // perhaps that is why, and the next holder calls again
		}
		if err == nil || !p.Concurrent || !p.died(ctx, err) {
			return result, err
		}
		result, err = p.retry(ctx, a, o, b)
	}
	return result, err
}

// died reports whether a call failed because its process died, of it or of another call.
func (p *Pool) died(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !p.Stop.Requested() && p.Collateral != nil && p.Collateral(err)
}

// retry makes a call beside none that is retried.
func (p *Pool) retry(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	select {
	case p.retrying <- struct{}{}:
	case <-ctx.Done():
		return action.BackupResult{}, context.Cause(ctx)
	}
	defer func() { <-p.retrying }()
	return p.execute(ctx, a, o, b)
}
