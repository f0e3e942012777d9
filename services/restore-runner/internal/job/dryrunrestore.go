package job

import (
	"context"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

func isDryRun(o *velerov1.Restore) bool { return mark.IsDryRun(o, o.Status.Phase.IsNew()) }

// endDryRun plans a Restore, and ends it with what was found. Of two processes that do so at once, both may
// store a plan, and one ends the Restore.
func (k *Kind) endDryRun(ctx context.Context, restore *velerov1.Restore) (engine.Decision[*velerov1.Restore], error) {
	if !k.planning.TryAcquire(1) { // waiting would take the place of a restore
		return engine.NotNow[*velerov1.Restore]("as many dry runs as may be are being made"), nil
	}
	defer k.planning.Release(1)
	planned, err := k.runDryRun(ctx, &PlanRequest{Restore: restore})
	var found []string
	if err != nil {
		found, err = mark.FailedDryRun(ctx, err)
	} else {
		found, err = mark.SummarizePlan(&planned.Header, planned.Unstored), planned.Close()
	}
	if err != nil {
		return engine.Decision[*velerov1.Restore]{}, fmt.Errorf("plan the restore: %w", err)
	}
	return engine.End(func(o *velerov1.Restore) error {
		if !o.Status.Phase.IsNew() {
			return kube.ErrSkip
		}
		o.Status.Phase, o.Status.ValidationErrors = velerov1.RestorePhaseFailedValidation, found
		return nil
	}, func(ctx context.Context, o *velerov1.Restore) {
		k.cfg.Log.InfoContext(ctx, "Dry run of a restore ended", "restore", o.Name, "found", found)
		k.cfg.Metrics.EndedAs(o)
		k.cfg.Ended(ctx, o)
	}), nil
}
