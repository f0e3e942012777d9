package operation

import (
	"context"
	"encoding/json"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// Homes finds the processes that operations live in; operationhome.Client is one.
type Homes interface {
	// At returns who can be asked about the operations in a process of an instance. Errors wrap
	// operationhome.ErrGone once that process, or the instance, has ended.
	At(instance, process string) action.Operations
	// Forget is for an operation that is not asked about any more.
	Forget(ctx context.Context, instance, process string, op action.Operation) error
}

// Actions reaches the actions that began operations. Safe for concurrent use.
type Actions struct {
	// Shared are asked about operations outside of a plugin's process, Homes about the others.
	Shared action.Operations
	Homes  Homes
}

// ActionOf returns who can be asked about an operation.
func (a *Actions) ActionOf(op *Operation) action.Operations {
	if op.Home != nil {
		return a.Homes.At(op.Home.Instance, op.Home.Process)
	}
	return a.Shared
}

// ForgetOperation lets the process of an operation go that is not asked about any more. It is best
// effort: the process may have ended.
func (a *Actions) ForgetOperation(ctx context.Context, op *Operation) {
	if op.Home != nil {
		_ = a.Homes.Forget(ctx, op.Home.Instance, op.Home.Process, op.ActionOperation())
	}
}

// ActionOperation names the operation for its action.
func (op *Operation) ActionOperation() action.Operation {
	return action.Operation{Kind: op.Kind, Action: op.Action, ID: op.ID}
}

// QueueName names the operations whose calls are bounded together: an instance that does not answer
// holds up its own operations only.
func (op *Operation) QueueName() string {
	if op.Home != nil {
		return op.Action + " in " + op.Home.Instance
	}
	return op.Action
}

// EncodeJob returns a Backup or Restore as actions get it: with its kind, which a typed client leaves
// out and which is set in a copy.
func EncodeJob(job client.Object, kind string) ([]byte, error) {
	named := job.DeepCopyObject()
	named.GetObjectKind().SetGroupVersionKind(velerov1.GroupVersion.WithKind(kind))
	return json.Marshal(named)
}
