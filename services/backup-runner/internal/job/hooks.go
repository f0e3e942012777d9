package job

import (
	"context"
	"fmt"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
)

// hookPatience is for how long calls of the bucket fail until the post hooks of Pods run early; it is
// never more than a part of StorePatience.
const (
	hookPatience = 10 * time.Second
	patienceOf   = 4
)

// noteBucketFailing is called with the time since which a call of the bucket has been failing.
func (a *attempt) noteBucketFailing(since time.Duration) {
	if a.held.Cancelled() != nil && since >= cancelledPatience {
		a.leaveBucket(errBucketAway)
	}
	if since < min(hookPatience, a.StorePatience/patienceOf) {
		return
	}
	select {
	case a.away <- struct{}{}:
	default:
	}
}

// watchBucket runs post hooks early while the bucket is away, until the returned function is called.
func (a *attempt) watchBucket(ctx context.Context) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group panics.Group
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-a.away:
				a.runHooksEarly(ctx)
			}
			select {
			case <-a.away: // while they ran; the next failure sends another
			default:
			}
		}
	})
	return func() {
		cancel()
		_ = group.Wait() // it returns no error
	}
}

// runHooksEarly runs the post hooks of Pods that would wait for a bucket which is away. Later holders do not
// take them for Pods between their hooks.
func (a *attempt) runHooksEarly(ctx context.Context) {
	if a.Exec != nil {
		podhook.RunEarly(ctx, a.hookConfig(a.held.Confirm), a.announceEarly)
	}
}

// announceEarly notes on the object that post hooks run before what they follow. They run also where
// that fails.
func (a *attempt) announceEarly(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, lastWriteLimit)
	defer stop()
	err := a.callLoop(a.held.Log).Do(ctx, "announce early post hooks", func() error {
		_, err := a.held.Update(ctx, func(b *velerov1.Backup) error { return mark.SetPostHooks(b, mark.PostHooks{Early: true}) })
		return err
	})
	if err != nil {
		a.held.Log.WarnContext(ctx, "Failed to record that post hooks run early; later holders of the backup do not know it", "error", err)
	}
}

// hookConfig is what post hooks of the opened Pods run with, without records.
func (a *attempt) hookConfig(confirm func(context.Context) error) podhook.Config {
	return podhook.Config{Exec: a.Exec, Past: &history.Hooks{}, Confirm: confirm, Opened: &a.opened, Log: a.held.Log}
}

// runOpened runs the post hooks of the Pods that are between their hooks as far as this process has
// it, also those that may have run before. It needs no bucket. A hook that fails is logged; an error
// is that of confirm, or the end of ctx.
func (a *attempt) runOpened(ctx context.Context, confirm func(context.Context) error) error {
	pods := a.opened.Pods()
	if a.Exec == nil || len(pods) == 0 {
		return nil
	}
	if _, err := podhook.RunOwed(ctx, a.hookConfig(confirm), pods); err != nil {
		return fmt.Errorf("run post hooks: %w", err)
	}
	return nil
}
