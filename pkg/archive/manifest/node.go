package manifest

import (
	"iter"
	"slices"
	"sort"
	"unsafe"
)

// Node is an item of a Graph. Nodes are comparable.
type Node struct {
	graph *Graph
	id    uint32
}

// Edge is an item that another one owns or refers to, or the other way around.
type Edge struct {
	Node Node
	// Relation is Owns, or the relation of a Reference.
	Relation string
}

// Key returns the place of the item in the manifest's order.
func (n Node) Key() Key {
	l := n.graph.findNodeList(n.id)
	k := &n.graph.kinds[l.kind]
	return Key{Kind: KindName(k.group, k.version, k.kind), Namespace: l.namespace, Name: n.name()}
}

// ObjectKey returns the key of the item's object.
func (n Node) ObjectKey() ObjectKey {
	l := n.graph.findNodeList(n.id)
	k := &n.graph.kinds[l.kind]
	return ObjectKey{Group: k.group, Kind: k.kind, Namespace: l.namespace, Name: n.name()}
}

func (n Node) name() string { return n.graph.names.nameAt(n.graph.nodes[n.id].name) }

// String returns the tarball path.
func (n Node) String() string {
	l := n.graph.findNodeList(n.id)
	k := &n.graph.kinds[l.kind]
	path := "resources/" + k.resource
	if !k.preferred {
		path += "/" + k.version
	}
	if l.namespace == "" {
		return path + "/cluster/" + n.name() + ".json"
	}
	return path + "/namespaces/" + l.namespace + "/" + n.name() + ".json"
}

// Owners returns the items that own this one or refer to it, in the manifest's order.
func (n Node) Owners() []Edge { return slices.Collect(n.linkedItems(true)) }

// Children returns the items that this one owns or refers to, in the manifest's order.
func (n Node) Children() []Edge { return slices.Collect(n.linkedItems(false)) }

// linkedItems yields the children, or, backwards, the owners.
func (n Node) linkedItems(backwards bool) iter.Seq[Edge] {
	g := n.graph
	edgeAt := func(i int) (e graphEdge, near, far uint32) {
		if e = g.edges[i]; backwards {
			e = g.edges[e.place]
			return e, e.child(), e.parent()
		}
		return e, e.parent(), e.child()
	}
	return func(yield func(Edge) bool) {
		i := sort.Search(len(g.edges), func(i int) bool { _, near, _ := edgeAt(i); return near >= n.id })
		for ; i < len(g.edges); i++ {
			e, near, far := edgeAt(i)
			if near != n.id || !yield(Edge{g.nodeOf(far), g.relations[e.relation]}) {
				return
			}
		}
	}
}

// Reach yields the items that this one owns or refers to, or, backwards, those that own or refer to it,
// in any number of steps over relations that follow accepts: the nearest first, each item once, and not
// the item itself. Each comes in the edge of the last step, with the item where that began.
func (n Node) Reach(backwards bool, follow func(relation string) bool) iter.Seq2[Node, Edge] {
	return n.graph.Reach([]Node{n}, backwards, follow)
}

// Reach is Node.Reach of several items at once: it yields none of these.
func (g *Graph) Reach(roots []Node, backwards bool, follow func(relation string) bool) iter.Seq2[Node, Edge] {
	return func(yield func(from Node, edge Edge) bool) {
		reached := make([]uint64, len(g.nodes)/64+1) // a bit for each item
		queue := make([]uint32, 0, len(roots))
		for _, n := range roots {
			queue = append(queue, n.id)
			reached[n.id/64] |= 1 << (n.id % 64)
		}
		for ; len(queue) > 0; queue = queue[1:] {
			from := g.nodeOf(queue[0])
			for e := range from.linkedItems(backwards) {
				word, bit := &reached[e.Node.id/64], uint64(1)<<(e.Node.id%64)
				if *word&bit != 0 || !follow(e.Relation) {
					continue
				}
				*word |= bit
				queue = append(queue, e.Node.id)
				if !yield(from, e) {
					return
				}
			}
		}
	}
}

// nameArena holds names one behind the other. A place is the number of a chunk and an offset in it.
type nameArena struct{ chunks [][]byte }

const (
	chunkBits = 16
	// maxName is the longest name an arena takes; an API server allows 253 bytes, and 1,024 for some kinds.
	maxName = 1<<14 - 1
)

func (a *nameArena) size() int { return len(a.chunks) << chunkBits }

// addName returns the place of a name; false when it is too long.
func (a *nameArena) addName(name string) (uint32, bool) {
	if len(name) > maxName {
		return 0, false
	}
	last := len(a.chunks) - 1
	if last < 0 || len(a.chunks[last])+2+len(name) > 1<<chunkBits {
		a.chunks = append(a.chunks, make([]byte, 0, 1<<chunkBits))
		last++
	}
	chunk := a.chunks[last]
	place := uint32(last<<chunkBits | len(chunk)) //nolint:gosec // bounded by maxGraph
	chunk = append(chunk, byte(len(name)), byte(len(name)>>8))
	a.chunks[last] = append(chunk, name...)
	return place, true
}

// nameAt returns the name at a place without a copy: what is in a chunk is never written again.
func (a *nameArena) nameAt(place uint32) string {
	b := a.chunks[place>>chunkBits][place&(1<<chunkBits-1):]
	n := int(b[0]) | int(b[1])<<8
	return unsafe.String(unsafe.SliceData(b[2:]), n)
}
