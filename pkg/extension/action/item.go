package action

import "k8s.io/apimachinery/pkg/runtime/schema"

// Item names an object by its resource, as actions name the further objects they need.
type Item struct {
	schema.GroupResource
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	Name      string
}

// String returns "resource.group namespace/name".
func (i Item) String() string {
	if i.Namespace == "" {
		return i.GroupResource.String() + " " + i.Name
	}
	return i.GroupResource.String() + " " + i.Namespace + "/" + i.Name
}
