package manifest

import (
	"errors"
	"slices"
)

// ErrItemExists means that a Manifest already holds an item with that path.
var ErrItemExists = errors.New("item already exists in manifest")

// Manifest holds items in memory for set operations and for following owners. For a whole backup
// use Reader, which streams. It is not safe for concurrent use while items are added.
type Manifest struct {
	// Kinds maps kinds (as KindName returns them) to namespaces to items; cluster-scoped items are
	// in namespace "".
	Kinds map[string]map[string][]*Node
	// Index finds items by UID.
	Index map[string]*Node

	paths    map[string]*Node
	children map[string][]*Node // by UID of the owner
}

// Node is an item of a Manifest.
type Node struct {
	Item
	manifest *Manifest
}

// New returns an empty manifest.
func New() *Manifest {
	return &Manifest{Kinds: map[string]map[string][]*Node{}, Index: map[string]*Node{}, paths: map[string]*Node{}, children: map[string][]*Node{}}
}

// Add puts an item into the manifest; ErrItemExists if its path is there.
func (m *Manifest) Add(item Item) (*Node, error) {
	if _, ok := m.paths[item.Path]; ok {
		return nil, ErrItemExists
	}
	n := &Node{Item: item, manifest: m}
	kind := KindName(item.Group, item.Version, item.Kind)
	if m.Kinds[kind] == nil {
		m.Kinds[kind] = map[string][]*Node{}
	}
	m.Kinds[kind][item.Namespace] = append(m.Kinds[kind][item.Namespace], n)
	m.paths[item.Path] = n
	if _, ok := m.Index[item.UID]; !ok && item.UID != "" {
		m.Index[item.UID] = n
	}
	for _, o := range item.Owners {
		m.children[o.UID] = append(m.children[o.UID], n)
	}
	return n, nil
}

// Set returns the paths of all items, sorted.
func (m *Manifest) Set() []string {
	set := make([]string, 0, len(m.paths))
	for p := range m.paths {
		set = append(set, p)
	}
	slices.Sort(set)
	return set
}

// Overlap returns the paths both manifests hold, sorted.
func (m *Manifest) Overlap(o *Manifest) []string {
	var both []string
	for p := range m.paths {
		if _, ok := o.paths[p]; ok {
			both = append(both, p)
		}
	}
	slices.Sort(both)
	return both
}

// Owners returns the owners of the item that the manifest holds, in the order of its references.
func (n *Node) Owners() []*Node {
	var owners []*Node
	for _, o := range n.Item.Owners {
		if owner, ok := n.manifest.Index[o.UID]; ok {
			owners = append(owners, owner)
		}
	}
	return owners
}

// Children returns the items that name this one as an owner, in the order they were added.
func (n *Node) Children() []*Node { return slices.Clone(n.manifest.children[n.UID]) }
