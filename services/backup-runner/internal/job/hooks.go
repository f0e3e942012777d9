package job

import (
	"context"
	"fmt"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/posthooks"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
)

// hookPatience is for how long calls of the bucket fail until the post hooks of Pods run early; it is
// never more than a part of StorePatience.
const (
	hookPatience = 10 * time.Second
	patienceOf   = 4
)

// failing is told for how long a call of the bucket has been failing.
func (a *attempt) failing(since time.Duration) {
	if since < min(hookPatience, a.StorePatience/patienceOf) {
		return
	}
	select {
	case a.away <- struct{}{}:
	default:
	}
}

// runOpened runs the post hooks of the Pods that are between their hooks as far as this process has
// it, also those that may have run before. It needs no bucket. A hook that fails is logged; an error
// is that of confirm, or the end of ctx.
func (a *attempt) runOpened(ctx context.Context, confirm func(context.Context) error) error {
	pods := a.opened.Pods()
	if a.Exec == nil || len(pods) == 0 {
		return nil
	}
	cfg := podhook.Config{Exec: a.Exec, Past: &history.Hooks{}, Confirm: confirm, Opened: &a.opened, Log: a.held.Log}
	if _, err := podhook.RunOwed(ctx, cfg, pods); err != nil {
		return fmt.Errorf("run post hooks: %w", err)
	}
	return nil
}

// thaw runs the post hooks of Pods that would wait for a bucket which is away. Later holders do not
// take them for Pods between their hooks.
func (a *attempt) thaw(ctx context.Context) {
	if len(a.opened.Pods()) == 0 {
		return
	}
	if err := a.announceEarly(ctx); err != nil {
		a.held.Log.WarnContext(ctx, "that post hooks run early is not known to later holders", "error", err)
	}
	if err := a.runOpened(ctx, a.held.Confirm); err != nil {
		a.held.Log.WarnContext(ctx, "post hooks are left to the next holder", "error", err)
	}
}

// announceEarly is podhook.Config's AnnounceEarly.
func (a *attempt) announceEarly(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, lastWriteLimit)
	defer stop()
	return a.calls(a.held.Log).Do(ctx, "announce early post hooks", func() error {
		_, err := a.held.Update(ctx, func(b *velerov1.Backup) error { return posthooks.Set(b, posthooks.Mark{Early: true}) })
		return err
	})
}
