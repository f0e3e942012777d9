package outcome

import (
	"encoding/json"

	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// Call is a call of an action that may begin an operation, about one object. It is recorded before
// the call is made, and again when it is known how the call ended.
type Call struct {
	Action string `json:"action"`
	// Answer is nil before the call.
	Answer *Answer `json:"answer,omitempty"`
	// NotSent reports that the call was not made after all: it still may be.
	NotSent bool `json:"unsent,omitempty"`
	// Begun is the operation that the call began, also one whose answer is not kept or whose call
	// failed otherwise; nil without one. It is complete without the plan, and names the object as it is
	// called in the cluster restored to.
	Begun *operation.Operation `json:"begun,omitempty"`
}

// Answer is what an action answered. A holder that has it does not make the call again.
type Answer struct {
	effect.Answer
	Skip bool `json:"skip,omitempty"`
	// Wait and WaitTimeout (nanoseconds) are what else the action answered.
	Wait        bool  `json:"wait,omitempty"`
	WaitTimeout int64 `json:"waitTimeout,omitempty"`
}

// maxAnswer bounds an answer in a record, in bytes; a line may be twice as long.
const maxAnswer = maxLineBytes / 2

// Call records a call. The first record has to be durable (Sync) before the call is made, which
// cannot be taken back; calls that are about to be made at the same time share the file that makes
// them durable. An answer that is larger than any object an API server takes is not kept, except
// for the operation that it names: a successor does not know how the call ended.
func (r *Recorder) Call(node int32, call Call) {
	if call.Answer != nil {
		if text, err := json.Marshal(call.Answer); err != nil || len(text) > maxAnswer {
			call.Answer = nil
		}
		if call.Answer == nil && call.Begun == nil {
			return
		}
	}
	e := r.Begin(node)
	e.record.Call = &call
	e.Commit()
}

// noteCall takes over what is known of a call.
func (h *History) noteCall(node int32, call *Call) {
	if call.NotSent {
		delete(h.Calls[node], call.Action)
		return
	}
	if h.Calls[node] == nil {
		putLazy(&h.Calls, node, map[string]*Answer{})
	}
	h.Calls[node][call.Action] = call.Answer
}
