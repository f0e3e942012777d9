package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// HeapOfParts is how much Parts may take for each object of the backup, in bytes.
const HeapOfParts = 160

// Parts are the objects of a backup that a restore names, and what comes along with them. Nil is all of the
// backup.
type Parts struct {
	graph *manifest.Graph
	items selection.Items
	// named has true for those that the plan takes.
	named map[manifest.Node]bool
	// along are the others, each with the last step to it.
	along map[manifest.Node]manifest.Edge
}

// FindParts finds the items in a backup, whose source lists in order of keys, and what they reach. Problems are
// the items that the backup does not hold.
func FindParts(ctx context.Context, source Source, items selection.Items) (parts *Parts, problems []string, err error) {
	graph, err := manifest.BuildGraph(source.Items(ctx))
	if err != nil {
		return nil, nil, fmt.Errorf("read the references of the backup: %w", err)
	}
	parts = &Parts{graph: graph, items: items, named: map[manifest.Node]bool{}, along: map[manifest.Node]manifest.Edge{}}
	var roots []manifest.Node
	for _, item := range items.Named {
		node, err := parts.findItem(item)
		if err != nil {
			problems = append(problems, fmt.Sprintf("item %s: %v", item, err))
			continue
		}
		roots = append(roots, node)
		parts.named[node] = false
	}
	if len(problems) > 0 || !items.Dependencies && !items.Children {
		return parts, problems, nil
	}
	// What a dependency owns is not asked for: a set that two Clusters name owns an object for each of them.
	reached := roots
	if items.Children {
		reached = append(reached, parts.followRelations(roots, func(relation string) bool { return relation == manifest.Owns })...)
	}
	if items.Dependencies {
		parts.followRelations(reached, func(relation string) bool { return relation != manifest.Owns })
	}
	return parts, nil, nil
}

// followRelations notes what nodes reach by some relations, and returns it.
func (p *Parts) followRelations(nodes []manifest.Node, relations func(relation string) bool) (reached []manifest.Node) {
	for from, edge := range p.graph.Reach(nodes, false, relations) {
		p.along[edge.Node] = manifest.Edge{Node: from, Relation: edge.Relation}
		reached = append(reached, edge.Node)
	}
	return reached
}

// findItem finds an item. The namespace of a cluster-scoped one does not matter.
func (p *Parts) findItem(item selection.Item) (manifest.Node, error) {
	kinds, err := manifest.FindKinds(p.graph.Kinds(), item.Kind)
	if errors.Is(err, manifest.ErrNoKind) {
		return manifest.Node{}, fmt.Errorf("the backup %w", err)
	}
	if err != nil {
		return manifest.Node{}, err
	}
	key := manifest.ObjectKey{Namespace: item.Namespace, Name: item.Name}
	key.Group, _, key.Kind, _ = manifest.SplitKindName(kinds[0].Kind)
	if node, ok := p.graph.Find(key); ok {
		return node, nil
	}
	others := p.graph.NamespacesOf(key)
	key.Namespace = ""
	if node, ok := p.graph.Find(key); ok {
		return node, nil
	}
	where := ""
	if item.Namespace != "" {
		where = fmt.Sprintf(" in namespace %q", item.Namespace)
	}
	if len(others) > 0 {
		where += ", but one in " + strings.Join(others[:min(len(others), maxNamed)], ", ")
	}
	return manifest.Node{}, fmt.Errorf("the backup holds no %s %q%s", key.Kind, item.Name, where)
}

// maxNamed is how many namespaces a message names.
const maxNamed = 10

// takesItem reports whether an item is named or comes along.
func (p *Parts) takesItem(item *manifest.Item) bool {
	if p == nil {
		return true
	}
	node, ok := p.graph.Find(item.ObjectKey())
	return ok && p.takesNode(node)
}

func (p *Parts) takesNode(node manifest.Node) bool {
	_, named := p.named[node]
	_, along := p.along[node]
	return named || along
}

// Volumes returns those of the volumes that are taken, or bound to a claim that is.
func (p *Parts) Volumes(volumes []manifest.Item) []manifest.Item {
	if p == nil {
		return volumes
	}
	return slices.DeleteFunc(slices.Clone(volumes), func(item manifest.Item) bool {
		node, ok := p.graph.Find(item.ObjectKey())
		return !ok || !p.takesNode(node) && !slices.ContainsFunc(append(node.Owners(), node.Children()...), func(e manifest.Edge) bool { return p.takesNode(e.Node) })
	})
}

// areClaims reports whether files of claims are restored, and no objects.
func (p *Parts) areClaims() bool { return p != nil && p.items.Files != nil }

// bringsRights reports whether what grants rights to accounts comes along with these: roles and bindings of
// namespaces too.
func (p *Parts) bringsRights() bool { return p != nil && p.items.Dependencies }

// admitsNamespace reports whether additional items of actions may live in a namespace of the backup: the restore
// has no reservation for others.
func (p *Parts) admitsNamespace(namespace string) bool {
	if p == nil {
		return true
	}
	bounds, known := p.items.Bounds()
	return !known || slices.Contains(bounds, namespace)
}

// LeftOut returns the items that the backup holds and the filters of the restore leave out. It is for use after Build.
func (p *Parts) LeftOut() (items []string) {
	if p == nil {
		return nil
	}
	for node, taken := range p.named {
		if !taken {
			items = append(items, nameOfObject(node))
		}
	}
	slices.Sort(items)
	return items
}

// maxReasons is for how many objects the log says why they come along.
const maxReasons = 10_000

// noteParts notes which nodes are named, and why others are in the plan.
func (b *planBuilder) noteParts() {
	parts, along := b.config.Parts, 0
	if parts == nil {
		return
	}
	for i := range b.plan.nodes {
		v := int32(i) //nolint:gosec // bounded by takeItem
		if b.plan.nodes[v].reserve {
			continue
		}
		kind := b.plan.Kind(v)
		// Items of the plan are items of the backup, all of which have a node.
		node, _ := parts.graph.Find(manifest.ObjectKey{Group: kind.GVK.Group, Kind: kind.GVK.Kind, Namespace: b.plan.Source(v), Name: b.plan.Name(v)})
		if _, named := parts.named[node]; named {
			parts.named[node] = true
			b.plan.named[v] = true
		} else if along++; along <= maxReasons {
			b.plan.notes = append(b.plan.notes, Note{Node: v, Message: "comes along: " + parts.reasonOf(kind.GroupResource(), node)})
		}
	}
	summary := fmt.Sprintf("the restore is of parts of the backup: objects named: %d, brought along: %d", len(b.plan.named), along)
	if along > maxReasons {
		summary += fmt.Sprintf(" (the log says why for the first %d)", maxReasons)
	}
	b.plan.notes = append(b.plan.notes, Note{Node: none, Message: summary})
}

// reasonOf says why an object is in the plan that is not named.
func (p *Parts) reasonOf(gr schema.GroupResource, node manifest.Node) string {
	if step, ok := p.along[node]; ok {
		return nameOfObject(step.Node) + " " + spellRelation(step.Relation) + " it"
	}
	switch gr.String() {
	case namespacesResource:
		return "objects of the restore live in it"
	case volumesResource:
		return "it is the volume of a claim of the restore"
	}
	return "it grants rights to an account of the restore"
}

func nameOfObject(node manifest.Node) string {
	key := node.ObjectKey()
	if key.Namespace == "" {
		return key.Kind + " " + key.Name
	}
	return key.Kind + " " + key.Namespace + "/" + key.Name
}

// spellRelation makes words of a relation: "runs as" of runsAs, "is made from" of madeFrom.
func spellRelation(relation string) string {
	var words strings.Builder
	for _, r := range relation {
		if unicode.IsUpper(r) {
			words.WriteByte(' ')
		}
		words.WriteRune(unicode.ToLower(r))
	}
	verb := words.String()
	if first, _, _ := strings.Cut(verb, " "); !strings.HasSuffix(first, "s") {
		return "is " + verb
	}
	return verb
}

// Named reports that the restore names object i as one of its parts.
func (p *Plan) Named(i int32) bool { return p.named[i] }
