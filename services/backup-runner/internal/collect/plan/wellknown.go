package plan

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// The resources.
var (
	Namespaces  = schema.GroupResource{Resource: "namespaces"}
	Definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	Pods        = schema.GroupResource{Resource: "pods"}
	Claims      = schema.GroupResource{Resource: "persistentvolumeclaims"}
	Volumes     = schema.GroupResource{Resource: "persistentvolumes"}
	Snapshots   = schema.GroupResource{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshots"}
)

// MessageOfNamespaces is about a backup whose filter IsOfNamespaces.
const MessageOfNamespaces = "The backup is of some namespaces: cluster-scoped objects are left out, but for those that the namespaces need; spec.includeClusterResources: true takes them"

// IsExtra reports that the filters do not select an object that is stored all the same: the Namespace of what
// they select.
func IsExtra(f *selection.Filter, gr schema.GroupResource, m *objmeta.Meta) bool {
	return gr == Namespaces && !f.SelectsNamespace(m.Name, m.Labels)
}
