package checkpoint

import (
	"cmp"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// Operations returns what calls began, each once, oldest first. Records that were written at the
// same time may have the same outcome.
func Operations(outcomes []Outcome) []operation.Operation {
	var out []operation.Operation
	seen := map[Call]struct{}{}
	for i := range outcomes {
		o := &outcomes[i]
		if _, twice := seen[o.Call]; twice || o.Begun == nil {
			continue
		}
		seen[o.Call] = struct{}{}
		out = append(out, operationOf(o))
	}
	slices.SortFunc(out, func(a, b operation.Operation) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Action, b.Action), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Item.String(), b.Item.String()))
	})
	return out
}

func operationOf(o *Outcome) operation.Operation {
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
