package outcome

import (
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// Counts is how far a restore is.
type Counts struct {
	Total    int `json:"total"`
	Done     int `json:"done"`
	Warnings int `json:"warnings"`
	Errors   int `json:"errors"`
	// Hooks are those of restored Pods, HooksFailed those of them that did not succeed, or will not
	// run.
	Hooks       int `json:"hooks,omitempty"`
	HooksFailed int `json:"hooksFailed,omitempty"`
}

// actionCode is an action in one byte; zero means that there is no outcome yet.
type actionCode uint8

var codes = []apply.Action{"", apply.Created, apply.Updated, apply.Failed, apply.Skipped}

func encodeAction(a apply.Action) actionCode {
	for i, known := range codes {
		if known == a {
			return actionCode(i)
		}
	}
	return 0
}

// outcomeTally is what became of the objects of a plan so far. The Recorder's lock guards it.
type outcomeTally struct {
	plan    *plan.Plan
	actions []actionCode
	asked   map[int32]struct{} // of the nodes in reserve
	moved   map[int32]Moved    // the nodes that actions gave another place or kind
	counts  Counts
	shared  int // the cluster-scoped objects without an outcome
}

// beginPlan starts anew with a plan; messages stay counted.
func (t *outcomeTally) beginPlan(p *plan.Plan) {
	t.plan, t.actions, t.asked, t.moved = p, make([]actionCode, p.Len()), map[int32]struct{}{}, map[int32]Moved{}
	t.counts.Total, t.counts.Done = p.Selected(), 0
	t.shared = 0
	for i := range int32(p.Len()) {
		if !p.Reserve(i) && p.Target(i) == "" {
			t.shared++
		}
	}
}

// askReserved makes an object that was kept in reserve one of those to restore.
func (t *outcomeTally) askReserved(node int32) {
	if _, known := t.asked[node]; known || !t.plan.Reserve(node) {
		return
	}
	t.asked[node] = struct{}{}
	t.counts.Total++
	if t.plan.Target(node) == "" {
		t.shared++
	}
}

// setOutcome gives an object its outcome, or another one.
func (t *outcomeTally) setOutcome(node int32, action actionCode) {
	if t.actions[node] == 0 {
		t.askReserved(node)
		t.counts.Done++
		if t.plan.Target(node) == "" {
			t.shared--
		}
	}
	t.actions[node] = action
}

// byAction counts the objects by what became of them.
func (t *outcomeTally) byAction() map[string]int {
	out := map[string]int{}
	for _, c := range t.actions {
		if c != 0 {
			out[string(codes[c])]++
		}
	}
	return out
}
