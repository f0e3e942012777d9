// Package object is one object on its way into the cluster: it is read from the backup, changed by
// actions, and has its node, target and owners in this restore.
package object

import (
	"maps"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// Object is an object on its way into the cluster. One goroutine uses it.
type Object struct {
	Node int32
	// Kind is the plan's, unless actions made it another.
	Kind *plan.Kind
	// Raw is the object as stored.
	Raw    []byte
	Body   map[string]any
	Target apply.Target
	// Owners are the owner references as stored.
	Owners []any
	// Status is the status as stored.
	Status any
	// Fields are the managed fields as stored, where they must come back.
	Fields []any
	// Exists reports that it is in the cluster, and is not to be created should it go.
	Exists bool
	// Tried reports that an earlier request for it failed, and may have taken effect all the same.
	Tried bool
	// Lock reports that processes elect a leader by it: one that is in the cluster is left as it is.
	Lock bool
	// Volume is the volume that it names in the backup, where it is a claim.
	Volume string
	// Unbound is the volume that it named, where it is a claim whose volume is nowhere.
	Unbound string
	// Suspended reports that it is a Job which this restore suspends. One that is in the cluster is left
	// as it runs.
	Suspended bool
	// Stored is the API version that it was stored in, where the cluster does not serve that.
	Stored string
	// Moved is the place and the kind that actions gave it, nil for those of the plan.
	Moved *outcome.Moved
	// Download is the moved data that a claim is filled with once it is created; nil for none.
	Download *podvolume.MovedVolume
	// Renamed is its name in this cluster, where that is not the backup's.
	Renamed string

	added      []any // owner references that actions added
	addedKnown bool
}

// Metadata returns the metadata of the body, to be changed.
func (o *Object) Metadata() map[string]any {
	meta, ok := o.Body["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		o.Body["metadata"] = meta
	}
	return meta
}

// Rename gives the object, which is a PersistentVolume, another name than it was stored under.
// Actions may hold parts of its body still.
func (o *Object) Rename(name, stored string) {
	o.Renamed, o.Target.Name = name, name
	o.Body = Named(o.Body, name)
	meta := o.Metadata()
	annotations := maps.Clone(MapAt(meta, "annotations"))
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[velerov1.AnnotationOriginalPVName] = stored
	meta["annotations"] = annotations
}

// Named returns an object under another name. Only the object itself and its metadata are copied.
func Named(body map[string]any, name string) map[string]any {
	body = maps.Clone(body)
	meta := maps.Clone(MapAt(body, "metadata"))
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"], body["metadata"] = name, meta
	return body
}

// Reference reads an owner reference; false when it is none.
func Reference(ref any) (map[string]any, objmeta.Owner, bool) {
	value, ok := ref.(map[string]any)
	if !ok {
		return nil, objmeta.Owner{}, false
	}
	controller, ok := value["controller"].(bool)
	return value, objmeta.Owner{
		APIVersion: TextAt(value, "apiVersion"), Kind: TextAt(value, "kind"), Name: TextAt(value, "name"), UID: TextAt(value, "uid"),
		Controller: ok && controller,
	}, true
}

// Controlled reports whether another object controls this one.
func (o *Object) Controlled() bool {
	for _, ref := range o.Owners {
		if _, owner, ok := Reference(ref); ok && owner.Controller {
			return true
		}
	}
	return false
}

// AddedOwners takes the owner references out of the body and returns those that actions added. A
// stored one that an action brought back is not among them: its UID is of the old cluster. What
// this restore wrote there since the first call is none of them.
func (o *Object) AddedOwners() []any {
	found := ListAt(o.Metadata(), "ownerReferences")
	delete(o.Metadata(), "ownerReferences")
	if o.addedKnown || len(found) == 0 {
		o.addedKnown = true
		return o.added
	}
	o.addedKnown = true
	old := map[string]bool{"": true}
	for _, ref := range o.Owners {
		if _, owner, ok := Reference(ref); ok {
			old[owner.UID] = true
		}
	}
	for _, ref := range found {
		if _, owner, ok := Reference(ref); ok && !old[owner.UID] {
			o.added = append(o.added, ref)
		}
	}
	return o.added
}
