package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// maxPlannedSpec is the most memory that a spec in a plan may take, in bytes.
const maxPlannedSpec = 64 << 20

// followPlan has outcomes be compared with the stored plan that the restore executes, if it names one.
// A plan that does not fit is an *unselectedError for the first holder; a successor, whose plan may
// have expired by now, goes on without it.
func (p *restorePlanner) followPlan(ctx context.Context, made *plan.Plan) error {
	id := p.in.restore.Annotations[holdfast.AnnotationPlan]
	if id == "" || p.in.records.head.Finished != nil {
		return nil
	}
	header, err := storedplan.ReadHeader(ctx, p.in.store, id)
	if err == nil {
		err = p.checkPlanned(ctx, header)
	}
	if err == nil {
		err = p.expectRows(ctx, id, made)
	}
	switch {
	case !isMisfit(err):
		return err
	case p.in.records.head.Planned != nil:
		p.in.recorder.Warn(outcome.General, fmt.Sprintf("outcomes are no longer compared with plan %s: %v", id, err))
		return nil
	}
	return &unselectedError{[]string{fmt.Sprintf("metadata.annotations[%s]: %v", holdfast.AnnotationPlan, err)}}
}

// isMisfit reports that a plan is none to execute.
func isMisfit(err error) bool {
	return errors.Is(err, storedplan.ErrNotFound) || errors.Is(err, storedplan.ErrCorrupt) || errors.Is(err, errOtherRestore) || errors.Is(err, errExpired)
}

// errOtherRestore means that a plan is none for the restore that names it.
var errOtherRestore = errors.New("the plan is for another restore")

// errExpired means that a plan is too old to be executed.
var errExpired = errors.New("the plan has expired")

// checkPlanned checks that a plan was made for a spec and annotations like those of the restore, and, where
// nothing was begun, that it has not expired.
func (p *restorePlanner) checkPlanned(ctx context.Context, h *storedplan.Header) error {
	if h.Kind != storedplan.KindRestore {
		return fmt.Errorf("%w: it is the plan of a %s", errOtherRestore, h.Kind)
	}
	if p.in.records.head.Planned == nil && !p.in.cfg.Clock.Now().Before(h.Expires) {
		return errExpired
	}
	now := p.in.restore
	planned := &velerov1.Restore{ObjectMeta: *now.ObjectMeta.DeepCopy()}
	if err := jsonlimit.Unmarshal(h.Spec, &planned.Spec, maxPlannedSpec); err != nil {
		return fmt.Errorf("%w: spec: %w", storedplan.ErrCorrupt, err)
	}
	if planned.Spec.ItemOperationTimeout.Duration == 0 { // whose default is the queue-scheduler's
		planned.Spec.ItemOperationTimeout = now.Spec.ItemOperationTimeout
	}
	if _, err := p.in.cfg.Validator.Restore(ctx, planned); err != nil {
		return fmt.Errorf("complete the spec of the plan: %w", err)
	}
	if !equality.Semantic.DeepEqual(planned.Spec, now.Spec) {
		return fmt.Errorf("%w: its spec is %s", errOtherRestore, specText(&planned.Spec))
	}
	for _, key := range holdfast.RestoreChoices {
		if h.Annotations[key] != now.Annotations[key] {
			return fmt.Errorf("%w: annotation %s was %q", errOtherRestore, key, h.Annotations[key])
		}
	}
	return nil
}

func specText(spec *velerov1.RestoreSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		return err.Error()
	}
	return string(text[:min(len(text), 1<<10)])
}

// expectRows reads the rows of a plan. Those with unknown effects promise nothing.
func (p *restorePlanner) expectRows(ctx context.Context, id string, made *plan.Plan) error {
	resources := map[string]string{} // by group and kind
	for i, kind := range made.Kinds() {
		resources[kind.GVK.Group+"/"+kind.GVK.Kind] = made.Kinds()[i].String()
	}
	for row, err := range storedplan.Rows(ctx, p.in.store, id) {
		if err != nil {
			return err
		}
		node, ok := made.Find(resources[row.Group+"/"+row.Kind], row.Namespace, row.Name)
		if ok && len(row.Unknown) == 0 {
			p.in.recorder.Expect(id, made, node, row.Action)
		}
	}
	return nil
}
