package job

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
)

// checkStrictly makes the plan of a restore anew that must do exactly what it executes, before anything is
// changed. Differences are an *unselectedError. A successor goes on with what was begun.
func (a *restoreAttempt) checkStrictly(ctx context.Context) error {
	id := a.restore.Annotations[holdfast.AnnotationPlan]
	head := &a.inputs.records.head
	if id == "" || a.restore.Annotations[holdfast.AnnotationPlanStrict] != "true" || head.Planned != nil || head.Finished != nil {
		return nil
	}
	header, err := storedplan.ReadHeader(ctx, a.inputs.store, id)
	if err == nil {
		err = (&restorePlanner{in: a.inputs}).checkPlanned(ctx, header)
	}
	var found *storedplan.Differences
	if err == nil {
		found, err = a.comparePlans(ctx, header)
	}
	switch {
	case isMisfit(err):
		return nil // which followPlan reports
	case err != nil || found.Total() == 0:
		return err
	}
	summary := fmt.Sprintf("metadata.annotations[%s]: %d objects differ from plan %s", holdfast.AnnotationPlanStrict, found.Total(), id)
	return &unselectedError{append([]string{summary}, found.First...)}
}

// comparePlans makes the plan anew, and returns the differences.
func (a *restoreAttempt) comparePlans(ctx context.Context, stored *storedplan.Header) (_ *storedplan.Differences, err error) {
	o := a.restore.DeepCopy()
	o.UID = uuid.NewUUID()
	delete(o.Annotations, holdfast.AnnotationPlan)
	dry, err := a.kind.openDryRun(ctx, a.kind.newDryRunSession(a.stopped, o))
	defer dry.inputs.close()
	if err != nil {
		return nil, err
	}
	defer dry.closeObjects()
	now, _, err := dry.runDry(ctx, stored.ServerDryRun, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, now.Close()) }()
	return storedplan.Compare(storedplan.Rows(ctx, a.inputs.store, stored.ID), now.Rows())
}
