package plan

import (
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/manifest"
)

// Kind is one kind of object of the backup.
type Kind struct {
	// GVK and Resource name the kind as it was stored.
	GVK      schema.GroupVersionKind
	Resource string
	// Namespaced is what the stored objects say.
	Namespaced bool
	rank       int
	name       string
	role       role
	phase      phase
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

	kind, namespace int32 // namespace is -1 for cluster-scoped objects
	path            string
	offset, length  int64
	sha256          [32]byte
	hashed          bool
	links           []link
	uid             string // only while the plan is built
	owns            bool
	reserve         bool
	early           bool // it waits for no stage
	scoped          bool // it is a quota of certain priority classes
}

// link is an owner reference of a node.
type link struct {
	uid      string
	relation Relation
}

// newNode keeps of an item what is needed to order it and to read its body.
func newNode(item *manifest.Item, kind, namespace int32) Node {
	n := Node{
		Name: strings.Clone(item.Name), Size: item.Size, kind: kind, namespace: namespace,
		offset: item.Offset, length: item.Length, uid: strings.Clone(item.UID), scoped: scoped(item),
	}
	if item.Path != standardPath(item.GroupResource(), item.Namespace, item.Name) {
		n.path = strings.Clone(item.Path)
	}
	if sum, err := hex.DecodeString(item.SHA256); err == nil && len(sum) == len(n.sha256) {
		n.hashed = true
		copy(n.sha256[:], sum)
	}
	of := schema.GroupKind{Group: item.Group, Kind: item.Kind}
	for _, owner := range item.Owners {
		n.links = append(n.links, link{uid: strings.Clone(owner.UID), relation: Relate(of, owner)})
	}
	return n
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
	n := &p.nodes[i]
	k := &p.kinds[n.kind]
	item := manifest.Item{
		Group: k.GVK.Group, Version: k.GVK.Version, Kind: k.GVK.Kind, Resource: k.Resource,
		Namespace: p.Source(i), Name: n.Name, Preferred: true,
		Path: n.path, Size: n.Size, Offset: n.offset, Length: n.length,
	}
	if item.Path == "" {
		item.Path = standardPath(k.name, item.Namespace, n.Name)
	}
	if n.hashed {
		item.SHA256 = hex.EncodeToString(n.sha256[:])
	}
	return item
}
