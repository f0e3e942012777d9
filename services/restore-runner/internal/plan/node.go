package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

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
	role       kindRole
	phase      passPhase
	paused     bool // its objects are created paused
}

// NewKind returns a kind of the cluster, for objects that are not of the kind of their plan.
func NewKind(gvk schema.GroupVersionKind, resource string, namespaced bool) *Kind {
	gr := schema.GroupResource{Group: gvk.Group, Resource: resource}
	return &Kind{GVK: gvk, Resource: resource, Namespaced: namespaced, name: gr.String()}
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

// planNode is one object, 24 bytes and its detail.
type planNode struct {
	at        position // of its detail
	size      uint32   // of the body, or the largest number there is
	namespace int32    // -1 for cluster-scoped objects
	kind      uint16
	owns      bool
	reserve   bool
	early     bool // it waits for no stage
	scoped    bool // it is a quota of certain priority classes
	companion bool // see Companion
	bounds    bool // see Bounds
}

// ownerLink is an owner reference of a node.
type ownerLink struct {
	owner    int32 // the number of its UID
	relation Relation
}

// detailOf keeps of an item what is needed to read its body and to find its owners.
func (p *Plan) detailOf(item *manifest.Item) *nodeDetail {
	d := &nodeDetail{name: item.Name, uid: item.UID, size: item.Size, offset: item.Offset, length: item.Length}
	if item.Path != standardPath(item.GroupResource(), item.Namespace, item.Name) {
		d.path = item.Path
	}
	if sum, err := hex.DecodeString(item.SHA256); err == nil && len(sum) == sha256.Size {
		d.sha256 = sum
	}
	of := schema.GroupKind{Group: item.Group, Kind: item.Kind}
	for _, owner := range item.Owners {
		if owner.UID != "" {
			d.links = append(d.links, ownerLink{owner: p.referTo(owner.UID), relation: Relate(of, owner)})
		}
	}
	return d
}

// referTo returns the number of a UID that some node refers to.
func (p *Plan) referTo(uid string) int32 {
	number, known := p.owners[uid]
	if !known {
		number = int32(len(p.ownerNodes))
		p.owners[strings.Clone(uid)] = number
		p.ownerNodes = append(p.ownerNodes, none)
	}
	return number
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
	reader := p.details.detailAt(p.nodes[i].at)
	d := reader.readDetail()
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
