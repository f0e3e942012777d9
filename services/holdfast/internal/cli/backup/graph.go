package backup

import (
	"cmp"
	"slices"

	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// treeKey names an object, in whichever version.
type treeKey struct{ group, kind, namespace, name string }

func newTreeKey(i *manifestv1.Item) treeKey {
	return treeKey{i.GetGroup(), i.GetKind(), i.GetNamespace(), i.GetName()}
}

// treeNode is an object of a graph, or one that another names and that was not read.
type treeNode struct {
	treeKey
	uid    string
	owners []string
	// owned are the objects that it owns, named those that its content names.
	owned []*treeNode
	named []treeLink
	// stored: it is in the backup; a node that another one names may be neither read nor known to be missing.
	stored bool
	inward bool // another node of the graph owns or names it
}

// treeLink is a reference.
type treeLink struct {
	relation string
	to       *treeNode
}

// treeGraph is the part of a backup that is drawn, with what it names.
type treeGraph struct {
	// namespace is the one that was read beside objects without namespace; empty for all.
	namespace string
	nodes     map[treeKey]*treeNode
	order     []*treeNode // as the backup has them
	links     map[*treeNode][]*manifestv1.Reference
}

func newTreeGraph(namespace string) *treeGraph {
	return &treeGraph{namespace: namespace, nodes: map[treeKey]*treeNode{}, links: map[*treeNode][]*manifestv1.Reference{}}
}

// addItem adds an object; other versions of one that is there are left out.
func (g *treeGraph) addItem(i *manifestv1.Item) {
	key := newTreeKey(i)
	if g.nodes[key] != nil {
		return
	}
	n := &treeNode{treeKey: key, uid: i.GetUid(), stored: true}
	for _, o := range i.GetOwners() {
		n.owners = append(n.owners, o.GetUid())
	}
	g.nodes[key], g.links[n] = n, i.GetReferences()
	g.order = append(g.order, n)
}

// linkNodes connects the objects once all are there.
func (g *treeGraph) linkNodes() {
	byUID := make(map[string]*treeNode, len(g.order))
	for _, n := range g.order {
		if n.uid != "" {
			byUID[n.uid] = n
		}
	}
	for _, n := range g.order {
		for _, uid := range n.owners {
			if owner := byUID[uid]; owner != nil && owner != n {
				owner.owned = append(owner.owned, n)
				n.inward = n.inward || g.isDrawn(owner)
			}
		}
		for _, r := range g.links[n] {
			to := g.findTarget(treeKey{r.GetGroup(), r.GetKind(), r.GetNamespace(), r.GetName()})
			n.named = append(n.named, treeLink{r.GetRelation(), to})
			to.inward = to.inward || to != n && g.isDrawn(n)
		}
	}
	g.links = nil
}

// findTarget returns a node for an object that another names.
func (g *treeGraph) findTarget(key treeKey) *treeNode {
	n := g.nodes[key]
	if n == nil {
		n = &treeNode{treeKey: key}
		g.nodes[key] = n
	}
	return n
}

// isDrawn reports whether trees may begin with a node: objects without namespace are there for those that name
// them, where a namespace was asked for.
func (g *treeGraph) isDrawn(n *treeNode) bool { return g.namespace == "" || n.namespace == g.namespace }

// isMissing reports whether a node is known not to be in the backup.
func (g *treeGraph) isMissing(n *treeNode) bool {
	return !n.stored && (g.isDrawn(n) || n.namespace == "")
}

// findRoots returns the objects that trees begin with: those that no other owns or names, then one of each circle
// of those that are left, by namespace.
func (g *treeGraph) findRoots() []*treeNode {
	var roots []*treeNode
	reached := map[*treeNode]bool{}
	for _, circles := range []bool{false, true} {
		for _, n := range g.order {
			if g.isDrawn(n) && !reached[n] && (circles || !n.inward) {
				roots = append(roots, n)
				n.eachReached(reached, func(*treeNode) {})
			}
		}
	}
	slices.SortStableFunc(roots, func(a, b *treeNode) int { return cmp.Compare(a.namespace, b.namespace) })
	return roots
}

// eachReached calls do for a node and all that can be reached from it and was not before.
func (n *treeNode) eachReached(reached map[*treeNode]bool, do func(*treeNode)) {
	for waiting := []*treeNode{n}; len(waiting) > 0; {
		n := waiting[0]
		waiting = waiting[1:]
		if reached[n] {
			continue
		}
		reached[n] = true
		do(n)
		waiting = append(waiting, n.owned...)
		for _, l := range n.named {
			waiting = append(waiting, l.to)
		}
	}
}
