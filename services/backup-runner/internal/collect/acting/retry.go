package acting

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// callRetryable makes a call that may be made again, and repeats one that may have failed because of
// another call that its process was answering.
func (p *Pool) callRetryable(ctx context.Context, a action.BackupItem, o *action.Object, b *action.Backup) (action.BackupResult, error) {
	call := func(ctx context.Context) (action.BackupResult, error) { return p.executeCall(ctx, a, o, b) }
	if !p.Concurrent {
		result, err := call(ctx)
		return result, p.stopError(err)
	}
	result, err := effect.Retry(ctx, p.caller, call)
	return result, p.stopError(err)
}

// stopError returns the error of a call that has no answer. While the run stops, perhaps that is why: the next holder calls again.
func (p *Pool) stopError(err error) error {
	if broken := (*fatalError)(nil); err != nil && p.Stop.Requested() && !errors.As(err, &broken) {
		return &fatalError{plan.ErrStopped}
	}
	return err
}

// newCaller returns what makes the calls of a pool.
func newCaller(cfg *Config) *effect.Caller {
	return effect.NewCaller(effect.Config{
		IsProcessCrash: cfg.IsProcessCrash, Stopped: cfg.Stop.Requested, Operations: cfg.Operations,
		IsNotSent: func(err error) bool {
			unconfirmed := (*fatalError)(nil)
			return errors.As(err, &unconfirmed) || cfg.IsNotSent != nil && cfg.IsNotSent(err)
		},
	})
}
