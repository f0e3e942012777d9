package flight

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
	"github.com/holdfast-io/holdfast/pkg/objectstore/artifact"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// holdsServerState reports that an object of the server namespace is what the services keep for themselves: the
// ledger of jobs, the key that signs links, and the Leases of instances and duties. Settings are the
// user's.
func holdsServerState(kind string, o *object.Object) bool {
	switch kind {
	case "configmaps":
		return o.Target.Name == ledger.Name
	case "secrets":
		return o.Target.Name == artifact.SecretName
	case "leases.coordination.k8s.io":
		var lease coordinationv1.Lease
		return json.Unmarshal(o.Raw, &lease) == nil && (claim.IsInstance(&lease) || leaderelection.IsDuty(&lease))
	}
	return false
}
