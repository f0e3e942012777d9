package job

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
)

// runOpened runs the post hooks of the Pods whose hooks this process began, also those that may have
// run before. It needs no bucket. A hook that fails is logged; an error means that the claim was lost
// or the process stops.
func (a *attempt) runOpened(ctx context.Context) error {
	pods := a.opened.Pods()
	if a.Exec == nil || len(pods) == 0 {
		return nil
	}
	cfg := podhook.Config{Exec: a.Exec, Past: &history.Hooks{}, Confirm: a.held.Confirm, Opened: &a.opened, Log: a.held.Log}
	if _, err := podhook.RunOwed(ctx, cfg, pods); err != nil {
		return fmt.Errorf("run post hooks: %w", err)
	}
	return nil
}
