package outcome

import (
	"slices"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

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
	return operation.UniqueBy(out, func(o *Operation) *operation.Operation { return &o.Operation })
}

// keepOperations keeps the operations of a record; the caller holds the lock.
func (r *Recorder) keepOperations(node int32, rec *Record) {
	if rec.Call != nil && rec.Call.Begun != nil {
		r.begun = append(r.begun, Operation{Operation: *rec.Call.Begun, Node: node})
	}
	for i := range rec.Began {
		r.begun = append(r.begun, Operation{Operation: rec.Began[i], Node: node})
	}
}
