package plan

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
)

// Class is the pass in which a node is restored.
type Class uint8

// The classes, in the order of the passes.
const (
	// Definition is a CustomResourceDefinition.
	Definition Class = iota
	// NamespaceObject is a Namespace.
	NamespaceObject
	// Other is everything else.
	Other
)

// HeapPerObject is how much a restore adds to Go's memory limit for each object of the backup, in
// bytes. Promise P7 is 256: what Go's limit does not count needs the rest.
const HeapPerObject = 244

// Plan is what a restore does. It does not change once built and is safe for concurrent use.
type Plan struct {
	nodes      []planNode
	details    arena // of nodes
	kinds      []Kind
	namespaces []Namespace
	objects    map[string]int32 // source namespace -> its Namespace node
	unselected map[string]bool  // source namespaces whose Namespace is no object to restore
	owners     map[string]int32 // UIDs in the old cluster that nodes refer to -> their number
	ownerNodes []int32          // the node of each such UID, or none
	graph      Graph
	notes      []Note
	mapping    map[string]string
	places     map[string]int32 // name of a kind -> its index
	reserve    int              // nodes in reserve
	admits     func(gr schema.GroupResource, namespace string) bool
	claim      func(volume string) (namespace, name string)
	barriers   []phaseBarrier
	rivals     map[int32]int32 // object -> the one that goes to its name before it
	behind     map[int32]int32 // and back
	named      map[int32]bool  // see Named
	order      restoreorder.Order
}

// Note is a remark about one node that the restore's log and results must hold.
type Note struct {
	// Node is the object, or -1 when the remark is about the backup as a whole.
	Node int32
	// Message is for people.
	Message string
	// Warning is set for an entry in the results, not only in the log.
	Warning bool
}

// Len is the number of nodes, those in reserve included.
func (p *Plan) Len() int { return len(p.nodes) }

// Selected is the number of objects to restore.
func (p *Plan) Selected() int { return len(p.nodes) - p.reserve }

// Reserve reports that node i is restored only as an additional item of an action.
func (p *Plan) Reserve(i int32) bool { return p.nodes[i].reserve }

// Admits reports whether the restore's filters let an object of the namespace, as in the backup, be
// restored as an additional item of an action.
func (p *Plan) Admits(gr schema.GroupResource, namespace string) bool {
	return p.admits != nil && p.admits(gr, namespace)
}

// Name returns the name of object i in the backup.
func (p *Plan) Name(i int32) string { return string(p.nameOf(p.nodes[i])) }

// Size returns about how long the body of object i is, in bytes; at most 4 GiB.
func (p *Plan) Size(i int32) int64 { return int64(p.nodes[i].size) }

// Kind returns the kind of object i.
func (p *Plan) Kind(i int32) *Kind { return &p.kinds[p.nodes[i].kind] }

// Kinds returns all kinds that have objects in the plan.
func (p *Plan) Kinds() []Kind { return p.kinds }

// Source returns the namespace of object i in the backup, "" for cluster-scoped objects.
func (p *Plan) Source(i int32) string { return p.sourceOf(p.nodes[i]) }

func (p *Plan) sourceOf(n planNode) string {
	if n.namespace >= 0 {
		return p.namespaces[n.namespace].Source
	}
	return ""
}

// nameOf returns a name without a copy of it.
func (p *Plan) nameOf(n planNode) []byte {
	reader := p.details.detailAt(n.at)
	return reader.readText()
}

// Target returns the namespace object i is restored to, "" for cluster-scoped objects.
func (p *Plan) Target(i int32) string {
	if n := p.nodes[i].namespace; n >= 0 {
		return p.namespaces[n].Target
	}
	return ""
}

// MapNamespace returns the target of a namespace of the backup.
func (p *Plan) MapNamespace(source string) string { return mappedNamespace(p.mapping, source) }

// MappedFrom returns the namespace of the backup, the first of them, that the mapping gives another name,
// this one; "" where there is none.
func (p *Plan) MappedFrom(target string) (source string) {
	for from, to := range p.mapping {
		if to == target && from != target && (source == "" || from < source) {
			source = from
		}
	}
	return source
}

// Find returns the object of a kind ("deployments.apps") by its namespace and name in the backup;
// false when it is not part of the restore.
func (p *Plan) Find(kind, source, name string) (int32, bool) {
	k, ok := p.places[kind]
	if !ok {
		return 0, false
	}
	from := p.searchNode(k, source, false)
	i, ok := sort.Find(p.searchNode(k, source, true)-from, func(i int) int {
		return strings.Compare(name, p.Name(int32(from+i)))
	})
	return int32(from + i), ok
}

// searchNode returns the first node of a kind in a namespace of the backup, or the first one after all
// of these.
func (p *Plan) searchNode(kind int32, source string, after bool) int {
	return sort.Search(len(p.nodes), func(i int) bool {
		c := cmp.Or(cmp.Compare(int32(p.nodes[i].kind), kind), strings.Compare(p.Source(int32(i)), source))
		return c > 0 || c == 0 && !after
	})
}

// Class returns the pass of object i.
func (p *Plan) Class(i int32) Class {
	switch p.Kind(i).name {
	case definitionsResource:
		return Definition
	case namespacesResource:
		return NamespaceObject
	}
	return Other
}

// Namespaces returns the namespaces that the selected objects need.
func (p *Plan) Namespaces() []Namespace {
	return slices.DeleteFunc(slices.Clone(p.namespaces), func(n Namespace) bool { return n.reserve })
}

// Prepared reports whether the namespace of object i is among Namespaces, or it has none.
func (p *Plan) Prepared(i int32) bool {
	n := p.nodes[i].namespace
	return n < 0 || !p.namespaces[n].reserve
}

// NamespaceObject returns the Namespace node that describes a namespace of the backup; false when
// the backup, or what the filters left of it, has none.
func (p *Plan) NamespaceObject(source string) (int32, bool) {
	i, ok := p.objects[source]
	return i, ok
}

// NamespaceSelected reports that backup and restore select the Namespace node i. Otherwise it is in the
// plan for what lives in it: it is created where it is missing, and nothing else.
func (p *Plan) NamespaceSelected(i int32) bool { return !p.unselected[p.Name(i)] }

// Owner returns the node that had this UID in the old cluster; false when it is not part of the
// restore.
func (p *Plan) Owner(uid string) (int32, bool) {
	number, ok := p.owners[uid]
	if !ok || p.ownerNodes[number] == none {
		return 0, false
	}
	return p.ownerNodes[number], true
}

// Paused reports whether objects of node i's kind are created paused.
func (p *Plan) Paused(i int32) bool { return p.Kind(i).paused }

// Owns reports whether other nodes refer to node i as their owner.
func (p *Plan) Owns(i int32) bool { return p.nodes[i].owns }

// Graph returns what waits for what.
func (p *Plan) Graph() *Graph { return &p.graph }

// Names returns a plan of the same nodes that holds their kinds, namespaces and names alone: what the end of a restore
// needs.
func (p *Plan) Names() *Plan {
	out := &Plan{nodes: slices.Clone(p.nodes), kinds: p.kinds, namespaces: p.namespaces, mapping: p.mapping, places: p.places, reserve: p.reserve}
	var encoded []byte
	for i := range out.nodes {
		name := p.nameOf(p.nodes[i])
		encoded = append(binary.AppendUvarint(encoded[:0], uint64(len(name))), name...)
		out.nodes[i].at = out.details.add(encoded)
	}
	return out
}

// Notes returns the remarks of planning.
func (p *Plan) Notes() []Note { return p.notes }

// Of returns the selected nodes of a class, ascending.
func (p *Plan) Of(class Class) []int32 {
	var out []int32
	for i := range p.nodes {
		if p.Class(int32(i)) == class && !p.nodes[i].reserve {
			out = append(out, int32(i))
		}
	}
	return slices.Clip(out)
}
