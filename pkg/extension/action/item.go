package action

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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

// Progress is how far an operation has come that an action started.
type Progress struct {
	// Done reports that the operation has ended, well or badly.
	Done bool
	// Err is why it failed; it counts only when Done.
	Err string
	// Completed and Total are in Units, whatever the plugin means by it; Total 0 means unknown.
	Completed, Total int64
	// Units names what is counted, for people.
	Units string
	// Description says what is going on, for people.
	Description string
	// Started and Updated are the plugin's own times; zero means it gave none.
	Started, Updated time.Time
}
