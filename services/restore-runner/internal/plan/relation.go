package plan

import (
	"strings"

	"github.com/holdfast-io/holdfast/pkg/objmeta"
)

// Relation is how an owner reference is brought back.
type Relation uint8

// The relations.
const (
	// Hold: the owned object waits for its owner and is created with the owner's new UID.
	Hold Relation = iota
	// Late: the owned object comes first, without the reference, which is patched in once the owner exists. A controller
	// that came first would make its own objects instead.
	Late
	// Adopt: the reference is dropped for good; the controller comes later and adopts the object by its selector.
	Adopt
	// Remake: the owner, a Job, makes new objects of this kind itself; the stored ones are not restored beside it.
	Remake
)

// Relate tells how the reference of an object of a group resource to an owner is brought back.
func Relate(groupResource string, owner objmeta.Owner) Relation {
	group, _, hasGroup := strings.Cut(owner.APIVersion, "/")
	if !hasGroup {
		group = ""
	}
	switch groupResource {
	case "pods":
		if group == "batch" && owner.Kind == "Job" && owner.Controller {
			return Remake
		}
		return ofController(group, owner)
	case "replicasets.apps", "controllerrevisions.apps":
		return ofController(group, owner)
	case "jobs.batch":
		if owner.Controller {
			return Late
		}
	case "persistentvolumeclaims":
		if (group == "apps" && owner.Kind == "StatefulSet") || (group == "" && owner.Kind == "Pod") {
			return Late
		}
	}
	return Hold
}

// ofController relates what workload controllers make: the built-in ones adopt orphans, others may not.
func ofController(group string, owner objmeta.Owner) Relation {
	if !owner.Controller {
		return Hold
	}
	if group == "apps" || (group == "" && owner.Kind == "ReplicationController") {
		return Adopt
	}
	return Late
}
