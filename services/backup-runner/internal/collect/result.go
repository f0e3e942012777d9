package collect

import (
	"cmp"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Result is what was collected: the keys of the checkpoints, one per part, and sums over the parts.
type Result struct {
	Checkpoints             []string
	Items, Warnings, Errors int
	// Operations are what actions began, oldest first.
	Operations []operation.Operation
}

// results sums up sealed parts. Safe for concurrent use.
type results struct {
	mu  sync.Mutex
	sum Result
}

// sealed adds the part that the record under key is about.
func (r *results) sealed(key string, p *checkpoint.Part) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Checkpoints = append(r.sum.Checkpoints, key)
	r.sum.Items += p.Items
	r.sum.Warnings += p.Warnings
	r.sum.Errors += p.Errors
}

// operations returns the operations of the calls of all holders.
func (r *run) operations() []operation.Operation {
	var out []operation.Operation
	for _, o := range slices.Concat(r.past.Calls.Operations(), r.intents.Begun()) {
		out = append(out, operationOf(&o))
	}
	slices.SortFunc(out, func(a, b operation.Operation) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Action, b.Action), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Item.String(), b.Item.String()))
	})
	return out
}

func operationOf(o *checkpoint.Outcome) operation.Operation {
	b := o.Begun
	op := operation.Operation{
		Action: o.Action, Kind: b.Kind, ID: o.Operation, Key: b.Key, Created: b.Time,
		Item: operation.Resource{Group: o.Object.Group, Resource: b.Resource, Namespace: o.Object.Namespace, Name: o.Object.Name},
	}
	if b.Process != "" {
		op.Home = &operation.Home{Instance: b.Instance, Process: b.Process}
	}
	for _, i := range b.PostOperation {
		op.PostOperation = append(op.PostOperation, operation.Resource(i))
	}
	return op
}
