package plan

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// Kind is one kind of object of the backup.
type Kind struct {
	// GVK and Resource name the kind as it was stored.
	GVK      schema.GroupVersionKind
	Resource string
	// Namespaced reports whether the stored objects have a namespace.
	Namespaced bool
	rank       int
	name       string
	role       role
	phase      phase
	paused     bool // its objects are created paused
}

// GroupResource returns the name without the version.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.GVK.Group, Resource: k.Resource}
}

// String returns "pods" or "deployments.apps", as in tarball paths.
func (k *Kind) String() string { return k.name }

// Namespace is a namespace that objects are restored from and to.
type Namespace struct {
	// Source is its name in the backup, Target in the cluster.
	Source, Target string

	reserve bool // only objects in reserve live in it
}

// Node is one object to restore.
type Node struct {
	// Name is the object's name.
	Name string
	// Size is the length of the body in bytes.
	Size int64
}

// node is what is kept in memory of an object, 16 bytes.
type node struct {
	size      uint32 // of the body, or the largest number there is
	namespace int32  // -1 for cluster-scoped objects
	kind      uint16
	owns      bool
	reserve   bool
	early     bool // it waits for no stage
	scoped    bool // it is a quota of certain priority classes
}

// link is an owner reference of a node.
type link struct {
	uid      string
	relation Relation
}

// detailOf keeps of an item what is needed to read its body and to find its owners.
func detailOf(item *manifest.Item) *detail {
	d := &detail{name: item.Name, uid: item.UID, size: item.Size, offset: item.Offset, length: item.Length}
	if item.Path != standardPath(item.GroupResource(), item.Namespace, item.Name) {
		d.path = item.Path
	}
	if sum, err := hex.DecodeString(item.SHA256); err == nil && len(sum) == sha256.Size {
		d.sha256 = sum
	}
	of := schema.GroupKind{Group: item.Group, Kind: item.Kind}
	for _, owner := range item.Owners {
		d.links = append(d.links, link{uid: owner.UID, relation: Relate(of, owner)})
	}
	return d
}

// standardPath is where Velero's tarballs keep an object in its preferred version.
func standardPath(groupResource, namespace, name string) string {
	if namespace == "" {
		return "resources/" + groupResource + "/cluster/" + name + ".json"
	}
	return "resources/" + groupResource + "/namespaces/" + namespace + "/" + name + ".json"
}

// Item returns what a source needs to read the body of node i.
func (p *Plan) Item(i int32) manifest.Item {
	d := p.details.get(i)
	k := p.Kind(i)
	item := manifest.Item{
		Group: k.GVK.Group, Version: k.GVK.Version, Kind: k.GVK.Kind, Resource: k.Resource,
		Namespace: p.Source(i), Name: d.name, Preferred: true,
		Path: d.path, Size: d.size, Offset: d.offset, Length: d.length, SHA256: hex.EncodeToString(d.sha256),
	}
	if item.Path == "" {
		item.Path = standardPath(k.name, item.Namespace, d.name)
	}
	return item
}
