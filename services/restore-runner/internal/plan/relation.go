package plan

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// Relation is how an owner reference is brought back.
type Relation uint8

// The relations.
const (
	// Late: the owned object comes first, without the reference, which is patched in once the owner
	// exists. A controller that saw the owner first would make the owned object itself, and the
	// stored one would be lost.
	Late Relation = iota
	// Hold: the owned object waits for its owner, on which no controller acts, and is created with
	// the owner's new UID.
	Hold
	// Adopt: the reference is dropped for good; the controller comes later and adopts the object by
	// its selector.
	Adopt
	// Remake: the owner makes new objects of this kind itself, or they are of no use without the
	// run that made them; the stored ones are not restored beside it.
	Remake
)

// Relate returns how the reference of an object of a kind to an owner is restored.
func Relate(kind schema.GroupKind, owner objmeta.Owner) Relation {
	if r, ok := ownerRule(kind, owner); ok {
		return r
	}
	by := kindOf(groupOf(owner.APIVersion), owner.Kind)
	if precedesOwner(roleOf(kind), roleOf(by), by) {
		return Late
	}
	return Hold
}

// precedesOwner reports that an object has to be there before its owner: where a controller acts on the
// owner. A Service and a claim have controllers too, but come themselves before all that
// controllers act on.
func precedesOwner(kind, owner kindRole, by schema.GroupKind) bool {
	if owner.actsOnObjects() {
		return true
	}
	return (by.Kind == "Service" || by.Kind == "PersistentVolumeClaim") && by.Group == "" && !kind.actsOnObjects()
}
