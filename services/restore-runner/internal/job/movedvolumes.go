package job

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/volumes"
)

// settleMoved settles the volumes of claims that were filled from moved snapshots.
func settleMoved(ctx context.Context, a *restoreAttempt) error {
	recorder := a.inputs.recorder
	if a.inputs.records.head.Finished != nil || len(recorder.Downloads()) == 0 {
		return nil
	}
	client, err := apply.NewClient(a.cfg.REST, apply.ManagerOf(a.restore.UID), &dispatch.Limiter{}, a.cfg.Clock, a.confirm)
	if err != nil {
		return fmt.Errorf("settle the volumes of moved snapshots: %w", err)
	}
	awaiter := &volumes.Awaiter{Recorder: recorder, Existing: &object.LiveReader{Client: client}}
	return awaiter.SettleMoved(ctx)
}
