package plan

import "k8s.io/apimachinery/pkg/runtime/schema"

// The resources.
var (
	Namespaces  = schema.GroupResource{Resource: "namespaces"}
	Definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	Pods        = schema.GroupResource{Resource: "pods"}
	Claims      = schema.GroupResource{Resource: "persistentvolumeclaims"}
	Volumes     = schema.GroupResource{Resource: "persistentvolumes"}
	Snapshots   = schema.GroupResource{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshots"}
)
