package job

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// isDryRun reports a new Restore that is to be planned only. It is in no queue and gets no claim.
func isDryRun(o *velerov1.Restore) bool {
	return o.Status.Phase.IsNew() && o.DeletionTimestamp == nil && o.Annotations[holdfast.AnnotationDryRun] == "true"
}

// endDryRun plans a Restore, and ends it with what was found. Of two processes that do so at once, both may
// store a plan, and one ends the Restore.
func (k *Kind) endDryRun(ctx context.Context, restore *velerov1.Restore) (engine.Decision[*velerov1.Restore], error) {
	if !k.planning.TryAcquire(1) { // waiting would take the place of a restore
		return engine.NotNow[*velerov1.Restore]("as many dry runs as may be are being made"), nil
	}
	defer k.planning.Release(1)
	planned, err := k.runDryRun(ctx, &PlanRequest{Restore: restore})
	var found []string
	switch {
	case ctx.Err() != nil || err != nil && kube.IsTransient(err):
		return engine.Decision[*velerov1.Restore]{}, fmt.Errorf("plan the restore: %w", err)
	case err != nil:
		found = strings.Split(err.Error(), "\n")
	default:
		found = planned.summary()
		if err := planned.Close(); err != nil {
			return engine.Decision[*velerov1.Restore]{}, fmt.Errorf("close the plan: %w", err)
		}
	}
	return engine.End(func(o *velerov1.Restore) error {
		if !o.Status.Phase.IsNew() {
			return kube.ErrSkip
		}
		o.Status.Phase, o.Status.ValidationErrors = velerov1.RestorePhaseFailedValidation, found
		return nil
	}, func(ctx context.Context, o *velerov1.Restore) {
		k.cfg.Log.InfoContext(ctx, "dry run of a restore ended", "restore", o.Name, "found", found)
		k.cfg.Metrics.EndedAs(o)
		k.cfg.Ended(ctx, o)
	}), nil
}

// summary is the plan in a few texts.
func (p *PlannedRestore) summary() []string {
	stored := fmt.Sprintf("dry run: nothing was restored; annotation %s: %s on a Restore of the same spec executes the plan", holdfast.AnnotationPlan, p.Header.ID)
	if p.Unstored != nil {
		stored = fmt.Sprintf("dry run: nothing was restored; the plan is not stored: %v", p.Unstored)
	}
	var counts []string
	for _, action := range slices.Sorted(maps.Keys(p.Header.Counts)) {
		counts = append(counts, fmt.Sprintf("%d %s", p.Header.Counts[action], action))
	}
	out := []string{stored, "objects: " + strings.Join(counts, ", ")}
	return append(out, p.Header.Messages[:min(len(p.Header.Messages), maxDifferences)]...)
}
