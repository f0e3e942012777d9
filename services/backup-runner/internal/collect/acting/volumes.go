package acting

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// snapshotVolumes takes the native snapshots of what the Pods of a block mount, between the hooks of the
// block. The volumes are stored before, as far as the filters let them in; others are decided on with
// the rest.
func (a *objectProcessor) snapshotVolumes(ctx context.Context, h *hookedBlock) error {
	if a.pool.Snapshot == nil {
		return nil
	}
	for _, pod := range h.Hooks {
		found := a.pool.Facts.VolumesOf(pod.Namespace(), pod.Claims)
		for name, v := range found {
			if v.Stored {
				continue
			}
			item := action.Item{GroupResource: plan.Volumes, Name: name}
			if err := a.processPostponed(ctx, postponedItem{by: pod.Item(), request: request{by: "of the hooks"}, item: item}); err != nil {
				return err
			}
		}
		if err := a.drainPostponed(ctx); err != nil {
			return err
		}
		found = a.pool.Facts.VolumesOf(pod.Namespace(), pod.Claims)
		for name, v := range found {
			if !v.Stored {
				delete(found, name)
			}
		}
		if len(found) == 0 {
			continue
		}
		if err := a.out.Flush(); err != nil {
			return err
		}
		if err := a.pool.Snapshot(ctx, found, a.out); err != nil {
			return err
		}
	}
	return nil
}
