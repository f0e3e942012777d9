package job

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
)

// maxDifferences bounds the differences from a plan that a Restore lists.
const maxDifferences = 20

// checkStrictly makes the plan of a restore anew that must do exactly what it executes, before anything is
// changed. Differences are an *unselectedError. A successor goes on with what was begun.
func (a *restoreAttempt) checkStrictly(ctx context.Context) error {
	id := a.restore.Annotations[holdfast.AnnotationPlan]
	head := &a.inputs.records.head
	if id == "" || a.restore.Annotations[holdfast.AnnotationPlanStrict] != "true" || head.Planned != nil || head.Finished != nil {
		return nil
	}
	header, err := storedplan.ReadHeader(ctx, a.inputs.store, id)
	if errors.Is(err, storedplan.ErrNotFound) || errors.Is(err, storedplan.ErrCorrupt) {
		return nil // which followPlan reports
	}
	if err != nil {
		return err
	}
	differences, total, err := a.comparePlans(ctx, header)
	if err != nil || total == 0 {
		return err
	}
	summary := fmt.Sprintf("metadata.annotations[%s]: %d objects differ from plan %s", holdfast.AnnotationPlanStrict, total, id)
	return &unselectedError{append([]string{summary}, differences...)}
}

// comparePlans makes the plan anew, and returns the first differences and how many there are.
func (a *restoreAttempt) comparePlans(ctx context.Context, stored *storedplan.Header) (differences []string, total int, err error) {
	o := a.restore.DeepCopy()
	o.UID = uuid.NewUUID()
	delete(o.Annotations, holdfast.AnnotationPlan)
	dry, err := a.kind.openDryRun(ctx, a.kind.newDryRunSession(a.stopped, o))
	defer dry.inputs.close()
	if err != nil {
		return nil, 0, err
	}
	defer dry.closeObjects()
	now, _, err := dry.runDry(ctx, stored.ServerDryRun, nil)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, now.Close()) }()
	err = storedplan.Compare(storedplan.Rows(ctx, a.inputs.store, stored.ID), now.Rows(), func(planned, now *storedplan.Row) error {
		if text := differenceOf(planned, now); text != "" {
			if total++; total <= maxDifferences {
				differences = append(differences, text)
			}
		}
		return nil
	})
	return differences, total, err
}

// differenceOf tells how two rows of one object differ in what would become of it, "" where they do not.
func differenceOf(planned, now *storedplan.Row) string {
	switch {
	case planned == nil:
		return fmt.Sprintf("%s %s/%s: not in the plan, now: %s", now.Kind, now.Namespace, now.Name, now.Action)
	case now == nil:
		return fmt.Sprintf("%s %s/%s: planned: %s, now: nothing", planned.Kind, planned.Namespace, planned.Name, planned.Action)
	case len(planned.Unknown)+len(now.Unknown) > 0:
		return ""
	case planned.Action != now.Action:
		return fmt.Sprintf("%s %s/%s: planned: %s, now: %s", now.Kind, now.Namespace, now.Name, planned.Action, now.Action)
	case !slices.Equal(planned.Fields, now.Fields):
		return fmt.Sprintf("%s %s/%s: %s of other fields: planned: %v, now: %v", now.Kind, now.Namespace, now.Name, now.Action, planned.Fields, now.Fields)
	}
	return ""
}
