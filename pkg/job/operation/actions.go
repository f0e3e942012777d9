package operation

import (
	"encoding/json"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// ActionOperation names the operation for its action.
func (op *Operation) ActionOperation() action.Operation {
	return action.Operation{Kind: op.Kind, Action: op.Action, ID: op.ID}
}

// EncodeJob returns a Backup or Restore as actions get it: with its kind, which a typed client leaves
// out and which is set in a copy.
func EncodeJob(job client.Object, kind string) ([]byte, error) {
	named := job.DeepCopyObject()
	named.GetObjectKind().SetGroupVersionKind(velerov1.GroupVersion.WithKind(kind))
	return json.Marshal(named)
}
