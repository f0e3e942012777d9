package manifest

import (
	"cmp"
	"slices"
	"strings"
)

// Find returns the item of an object: of several versions the preferred one.
func (g *Graph) Find(key ObjectKey) (found Node, ok bool) {
	for i := range g.kinds {
		k := &g.kinds[i]
		if k.kind != key.Kind || k.group != key.Group || ok && !k.preferred {
			continue
		}
		if id, hit := g.findName(i, key.Namespace, key.Name); hit {
			found, ok = g.nodeOf(id), true
		}
	}
	return found, ok
}

// Kinds returns the kinds that have items, without their counts.
func (g *Graph) Kinds() []KindInfo {
	kinds := make([]KindInfo, len(g.kinds))
	for i, k := range g.kinds {
		kinds[i] = KindInfo{Kind: KindName(k.group, k.version, k.kind), Resource: k.resource, Preferred: k.preferred}
	}
	return kinds
}

// NamespacesOf returns the namespaces with an item of that kind and name, sorted: "" for a cluster-scoped one.
func (g *Graph) NamespacesOf(of ObjectKey) (namespaces []string) {
	for i := range g.lists {
		l := &g.lists[i]
		if k := &g.kinds[l.kind]; k.kind != of.Kind || k.group != of.Group {
			continue
		}
		if _, ok := g.findName(l.kind, l.namespace, of.Name); ok {
			namespaces = append(namespaces, l.namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// findName returns the node of a name in a namespace among those of kind number kind.
func (g *Graph) findName(kind int, namespace, name string) (uint32, bool) {
	i, ok := slices.BinarySearchFunc(g.lists, namespace, func(l graphList, namespace string) int {
		return cmp.Or(cmp.Compare(l.kind, kind), cmp.Compare(l.namespace+"/", namespace+"/"))
	})
	if !ok {
		return 0, false
	}
	first, end := g.lists[i].first, len(g.nodes)
	if i+1 < len(g.lists) {
		end = int(g.lists[i+1].first)
	}
	at, ok := slices.BinarySearchFunc(g.nodes[first:end], name, func(n graphNode, name string) int {
		return strings.Compare(g.names.nameAt(n.name), name)
	})
	return first + uint32(at), ok //nolint:gosec // bounded by Add
}

// FindUID returns the item whose object had that UID: of several versions the preferred one.
func (g *Graph) FindUID(uid string) (Node, bool) {
	id, ok := g.findHash(g.byUID, g.hashUID(uid), func(id uint32) uint64 { return g.nodes[id].uid })
	return g.nodeOf(id), ok
}
