package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
)

var (
	// ErrItemExists means that a Graph already holds an item with that key.
	ErrItemExists = errors.New("item already exists in manifest")
	// ErrTooLarge means that a manifest has more items and references than a Graph may hold.
	ErrTooLarge = errors.New("manifest is too large for a graph")
)

// Owns is the relation of an owner reference, from the owner to the object that has the reference.
const Owns = "owns"

const (
	// maxGraph bounds the memory of a Graph, in bytes: that of some two million items.
	maxGraph = 192 << 20
	// perNode and perEdge are the memory of an item besides its name, and of a reference.
	perNode = 28
	perEdge = 16
)

// ObjectKey names one object of a cluster. It has no version: an object that is stored in another
// version of its kind is the same object.
type ObjectKey struct {
	Group, Kind, Namespace, Name string
}

// ObjectKey returns the key of the item's object.
func (i *Item) ObjectKey() ObjectKey { return ObjectKey{i.Group, i.Kind, i.Namespace, i.Name} }

// Graph holds which items a manifest has and how they refer to each other, in about 80 bytes for an
// item. It is safe for concurrent use once Link returned.
type Graph struct {
	kinds     []graphKind
	lists     []graphList
	names     nameArena
	nodes     []graphNode
	edges     []graphEdge // while items are added in order of items, afterwards by parent, then child
	byUID     []uint32    // the nodes by hash of the UID
	relations []string
	seed      maphash.Seed
	last      Key
}

// graphKind is a kind as KindName returns it, and its resource as in tarball paths.
type graphKind struct {
	group, version, kind, resource string
	preferred                      bool
}

// graphList is a run of nodes of one kind in one namespace.
type graphList struct {
	first     uint32
	kind      int
	namespace string
}

type graphNode struct {
	uid  uint64 // hash of the UID, 0 without one
	name uint32 // place in names
}

// graphEdge is a relation between a parent, which owns or refers to a child, and this child.
type graphEdge struct {
	// ends holds parent and child, 32 bits each. Before Link it is the hash of the end that is not
	// resolved yet.
	ends uint64
	// place is the number of the edge that has this edge's place in the order by child. Before Link
	// it is the node whose item names the other end.
	place    uint32
	relation uint8
}

func (e graphEdge) parent() uint32 { return uint32(e.ends >> 32) } //nolint:gosec // the upper half
func (e graphEdge) child() uint32  { return uint32(e.ends) }       //nolint:gosec // the lower half

// NewGraph returns an empty graph. Add fills it, Link completes it.
func NewGraph() *Graph { return &Graph{seed: maphash.MakeSeed(), relations: []string{Owns}} }

// ReadGraph makes a graph of all items of a manifest.
func ReadGraph(ctx context.Context, r *Reader) (*Graph, error) {
	return BuildGraph(r.Items(ctx, Filter{}))
}

// BuildGraph makes a graph of items that come in order of keys.
func BuildGraph(items iter.Seq2[Item, error]) (*Graph, error) {
	g := NewGraph()
	for item, err := range items {
		if err == nil {
			err = g.Add(&item)
		}
		if err != nil {
			return nil, err
		}
	}
	g.Link()
	return g, nil
}

// Add puts an item into the graph, which keeps none of its memory. Items come in order of keys:
// ErrItemExists for an item that is there, ErrOrder for one that comes too late.
func (g *Graph) Add(item *Item) error {
	key := item.Key()
	if len(g.nodes) > 0 {
		switch c := key.Compare(g.last); {
		case c == 0:
			return fmt.Errorf("%w: %s", ErrItemExists, key)
		case c < 0:
			return fmt.Errorf("%w: %s after %s", ErrOrder, key, g.last)
		}
	}
	if len(g.nodes)*perNode+len(g.edges)*perEdge+g.names.size() > maxGraph {
		return fmt.Errorf("%w: more than %d items with %d references", ErrTooLarge, len(g.nodes), len(g.edges))
	}
	id := uint32(len(g.nodes)) //nolint:gosec // bounded above
	g.openList(item, id)
	place, ok := g.names.addName(item.Name)
	if !ok {
		return fmt.Errorf("%w: name of %d bytes", ErrCorrupt, len(item.Name))
	}
	g.nodes = append(g.nodes, graphNode{uid: g.hashUID(item.UID), name: place})
	for i := range item.Owners {
		g.edges = append(g.edges, graphEdge{ends: g.hashUID(item.Owners[i].UID), place: id})
	}
	for i := range item.References {
		r := &item.References[i]
		g.edges = append(g.edges, graphEdge{ends: g.hashKey(ObjectKey{r.Group, r.Kind, r.Namespace, r.Name}), place: id, relation: g.relationOf(r.Relation)})
	}
	g.last = Key{Kind: g.last.Kind, Namespace: g.last.Namespace, Name: g.names.nameAt(place)}
	return nil
}

// openList begins a list where the item is of another kind or namespace than the one before.
func (g *Graph) openList(item *Item, id uint32) {
	kind := KindName(item.Group, item.Version, item.Kind)
	newKind := len(g.nodes) == 0 || kind != g.last.Kind
	if newKind {
		g.kinds = append(g.kinds, graphKind{
			group: strings.Clone(item.Group), version: strings.Clone(item.Version), kind: strings.Clone(item.Kind),
			resource: strings.Clone(item.GroupResource()), preferred: item.Preferred,
		})
		g.last.Kind = kind
	}
	if newKind || item.Namespace != g.last.Namespace {
		g.last.Namespace = strings.Clone(item.Namespace)
		g.lists = append(g.lists, graphList{first: id, kind: len(g.kinds) - 1, namespace: g.last.Namespace})
	}
}

func (g *Graph) hashUID(uid string) uint64 {
	if uid == "" {
		return 0
	}
	return max(1, maphash.String(g.seed, uid))
}

func (g *Graph) hashKey(key ObjectKey) uint64 { return maphash.Comparable(g.seed, key) }

// maxRelations is how many names of relations an edge tells apart; what exceeds it counts as the last one.
const maxRelations = 256

func (g *Graph) relationOf(name string) uint8 {
	i := slices.Index(g.relations, name)
	if i < 0 && len(g.relations) < maxRelations {
		g.relations = append(g.relations, strings.Clone(name))
		i = len(g.relations) - 1
	}
	return uint8(i) //nolint:gosec // less than maxRelations, and -1 is the last one
}

// Link resolves owners and references. It ends the adding of items.
func (g *Graph) Link() {
	g.byUID = g.sortNodes(func(id uint32) uint64 { return g.nodes[id].uid })
	hashes := make([]uint64, len(g.nodes))
	for id := range hashes {
		hashes[id] = g.hashKey(g.nodeOf(uint32(id)).ObjectKey()) //nolint:gosec // bounded by Add
	}
	byKey := g.sortNodes(func(id uint32) uint64 { return hashes[id] })
	kept := g.edges[:0]
	for _, e := range g.edges {
		node := e.place
		var other uint32
		var ok bool
		if e.relation == 0 {
			other, ok = g.findHash(g.byUID, e.ends, func(id uint32) uint64 { return g.nodes[id].uid })
			e.ends = uint64(other)<<32 | uint64(node)
		} else {
			other, ok = g.findHash(byKey, e.ends, func(id uint32) uint64 { return hashes[id] })
			e.ends = uint64(node)<<32 | uint64(other)
		}
		if ok && other != node {
			kept = append(kept, e)
		}
	}
	g.edges = kept
	slices.SortFunc(g.edges, func(a, b graphEdge) int {
		return cmp.Or(cmp.Compare(a.ends, b.ends), cmp.Compare(a.relation, b.relation))
	})
	g.orderByChild()
}

// orderByChild sets the places of edges.
func (g *Graph) orderByChild() {
	order := make([]uint32, len(g.edges))
	for i := range order {
		order[i] = uint32(i) //nolint:gosec // bounded by Add
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(g.edges[a].child(), g.edges[b].child()) })
	for i, at := range order {
		g.edges[i].place = at
	}
}

// sortNodes returns all nodes in the order of a hash.
func (g *Graph) sortNodes(hash func(id uint32) uint64) []uint32 {
	sorted := make([]uint32, len(g.nodes))
	for id := range sorted {
		sorted[id] = uint32(id) //nolint:gosec // bounded by Add
	}
	slices.SortFunc(sorted, func(a, b uint32) int { return cmp.Or(cmp.Compare(hash(a), hash(b)), cmp.Compare(a, b)) })
	return sorted
}

// findHash returns the node with a hash: of several versions of an object the preferred one. 0 is no hash.
func (g *Graph) findHash(sorted []uint32, want uint64, hash func(id uint32) uint64) (uint32, bool) {
	i, ok := slices.BinarySearchFunc(sorted, want, func(id uint32, want uint64) int { return cmp.Compare(hash(id), want) })
	if !ok || want == 0 {
		return 0, false
	}
	for j := i; j < len(sorted) && hash(sorted[j]) == want; j++ {
		if g.kinds[g.findNodeList(sorted[j]).kind].preferred {
			return sorted[j], true
		}
	}
	return sorted[i], true
}

// findNodeList returns the list that a node is in.
func (g *Graph) findNodeList(id uint32) *graphList {
	i, found := slices.BinarySearchFunc(g.lists, id, func(l graphList, id uint32) int { return cmp.Compare(l.first, id) })
	if !found {
		i--
	}
	return &g.lists[i]
}

func (g *Graph) nodeOf(id uint32) Node { return Node{g, id} }
