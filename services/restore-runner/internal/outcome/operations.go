package outcome

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// BegunOperation is an operation that a call of an action began. It is complete without the plan.
type BegunOperation struct {
	// ID is the action's identifier of the operation, Kind what the action is registered as.
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// Item is the object as it is called in the cluster restored to.
	Item operation.Resource `json:"item"`
	// Key is the idempotency key of the call; empty for an action that takes none.
	Key string `json:"key,omitempty"`
	// Instance and Process identify the plugin process that keeps the operation, if it is kept there.
	Instance string `json:"instance,omitempty"`
	Process  string `json:"process,omitempty"`
	// Time is when the call was answered.
	Time time.Time `json:"time"`
}

// Operation is one that this holder of a restore, or an earlier one, began.
type Operation struct {
	operation.Operation
	// Node is the object that it was begun for; General where the plan is not known.
	Node int32
}

// Operations returns what was begun, each operation once, oldest first: all that are in the records
// once these were replayed or recalled. A call that was repeated with its key may have recorded the
// same one twice.
func (r *Recorder) Operations() []Operation {
	r.mu.Lock()
	out := slices.Clone(r.begun)
	r.mu.Unlock()
	slices.SortStableFunc(out, func(a, b Operation) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Action, b.Action), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Item.String(), b.Item.String()))
	})
	type name struct {
		action, id string
		item       operation.Resource
	}
	seen := map[name]struct{}{}
	return slices.DeleteFunc(out, func(o Operation) bool {
		key := name{o.Action, o.ID, o.Item}
		_, twice := seen[key]
		seen[key] = struct{}{}
		return twice
	})
}

// keepOperation keeps the operation of a record; the caller holds the lock.
func (r *Recorder) keepOperation(node int32, rec *Record) {
	if rec.Call == nil || rec.Call.Begun == nil {
		return
	}
	r.begun = append(r.begun, Operation{Operation: rec.Call.Begun.Of(rec.Call.Action), Node: node})
}

// Of is the operation as one of that action.
func (b *BegunOperation) Of(action string) operation.Operation {
	op := operation.Operation{Action: action, Kind: b.Kind, ID: b.ID, Item: b.Item, Key: b.Key, Created: b.Time}
	if b.Process != "" {
		op.Home = &operation.Home{Instance: b.Instance, Process: b.Process}
	}
	return op
}
