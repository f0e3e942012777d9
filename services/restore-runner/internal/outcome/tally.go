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

// code is an action in one byte; zero means that there is no outcome yet.
type code uint8

var codes = []apply.Action{"", apply.Created, apply.Updated, apply.Failed, apply.Skipped}

func codeOf(a apply.Action) code {
	for i, known := range codes {
		if known == a {
			return code(i)
		}
	}
	return 0
}

// tally is what became of the objects of a plan so far. The Recorder's lock guards it.
type tally struct {
	plan    *plan.Plan
	actions []code
	asked   map[int32]struct{} // of the nodes in reserve
	counts  Counts
}

// begin starts anew with a plan; messages stay counted.
func (t *tally) begin(p *plan.Plan) {
	t.plan, t.actions, t.asked = p, make([]code, p.Len()), map[int32]struct{}{}
	t.counts.Total, t.counts.Done = p.Selected(), 0
}

// ask makes an object that was kept in reserve one of those to restore.
func (t *tally) ask(node int32) {
	if _, known := t.asked[node]; known || !t.plan.Reserve(node) {
		return
	}
	t.asked[node] = struct{}{}
	t.counts.Total++
}

// set gives an object its outcome, or another one.
func (t *tally) set(node int32, action code) {
	if t.actions[node] == 0 {
		t.ask(node)
		t.counts.Done++
	}
	t.actions[node] = action
}

// byAction counts the objects by what became of them.
func (t *tally) byAction() map[string]int {
	out := map[string]int{}
	for _, c := range t.actions {
		if c != 0 {
			out[string(codes[c])]++
		}
	}
	return out
}
