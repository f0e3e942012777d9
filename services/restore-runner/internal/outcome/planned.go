package outcome

import (
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// The actions of the rows of a plan, and what an outcome is compared as.
const (
	PlanCreate    = "create"
	PlanUpdate    = "update"
	PlanUnchanged = "unchanged"
	PlanSkip      = "skip"
	PlanConflict  = "conflict"
	PlanError     = "error"
)

var planActions = []string{"", PlanCreate, PlanUpdate, PlanUnchanged, PlanSkip, PlanConflict, PlanError}

// PlanAction is the outcome in a record in the words of a plan; "" without one. An object that is
// there, differs and is left as it is, wholly or in part, is a conflict.
func (r *Record) PlanAction() string {
	switch r.Action {
	case apply.Created:
		return PlanCreate
	case apply.Updated:
		return PlanUpdate
	case apply.Skipped:
		if r.LeftOut {
			return PlanSkip
		}
		return PlanUnchanged
	case apply.Failed:
		for i := range r.Log {
			if r.Log[i].Level == joblog.Error.String() {
				return PlanError
			}
		}
		return PlanConflict
	}
	return ""
}

// expectations are the outcomes that a stored plan says, by node; zero where it says none.
type expectations struct {
	plan    string
	actions []uint8
}

// Expect has the outcome of an object that is not as the plan says become a warning of the object. It
// is called before the first outcome.
func (r *Recorder) Expect(planID string, p *plan.Plan, node int32, action string) {
	if r.expected.actions == nil {
		r.expected = expectations{plan: planID, actions: make([]uint8, p.Len())}
	}
	for code, known := range planActions {
		if known == action {
			r.expected.actions[node] = uint8(code)
		}
	}
}

// differsFrom returns how an outcome differs from the plan, "" where it does not.
func (x *expectations) differsFrom(node int32, rec *Record) string {
	got := rec.PlanAction()
	if got == "" || node == General || int(node) >= len(x.actions) || x.actions[node] == 0 {
		return ""
	}
	if want := planActions[x.actions[node]]; want != got {
		return fmt.Sprintf("differs from plan %s: planned: %s, now: %s", x.plan, want, got)
	}
	return ""
}
