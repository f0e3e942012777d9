package plan

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/manifest"
)

// Filter decides what is selected; pkg/selection's is one.
type Filter interface {
	// Resource reports whether objects of the resource are selected.
	Resource(gr schema.GroupResource, namespaced bool) bool
	// Namespace reports whether the namespace, by its name in the backup, is selected.
	Namespace(name string) bool
	// MatchesLabels reports whether an object with these labels passes the label selectors.
	MatchesLabels(set labels.Labels) bool
}

// Config says what to select.
type Config struct {
	Filter Filter
	// Mapping gives the target of each namespace that is not restored under its own name.
	Mapping map[string]string
	// Claim returns namespace and name, as in the backup, of the claim that a PersistentVolume is bound to. A volume whose
	// claim is selected is selected with it, unless NoClusterResources. Nil knows none.
	Claim func(volume string) (namespace, name string)
	// NoClusterResources says that cluster-scoped objects were refused outright.
	NoClusterResources bool
	// Reserve keeps in the plan what is not selected and may be restored all the same when an action asks for it by name.
	Reserve bool
}

// admits tells whether an object may be restored because an action asks for it: the lists of resources and namespaces
// decide, labels and the scope do not.
func (c *Config) admits(gr schema.GroupResource, namespace string) bool {
	if slices.Contains(nonRestorable, gr.String()) || !c.Filter.Resource(gr, true) {
		return false
	}
	if namespace == "" {
		return !c.NoClusterResources
	}
	return c.Filter.Namespace(namespace)
}

// Map returns the target of a namespace.
func (c *Config) Map(namespace string) string { return mapped(c.Mapping, namespace) }

func mapped(mapping map[string]string, namespace string) string {
	if target := mapping[namespace]; target != "" {
		return target
	}
	return namespace
}

// Build reads the listing of a backup once and plans its restore.
func Build(ctx context.Context, source Source, config Config) (*Plan, error) {
	b := &builder{
		config: config, plan: &Plan{objects: map[string]int32{}, owners: map[string]int32{}, mapping: config.Mapping, admits: config.admits, claim: config.Claim},
		kinds: map[schema.GroupResource]int32{}, namespaces: map[string]int32{}, needed: map[string]bool{}, claims: map[[2]string]bool{},
		hints: newHints(),
	}
	for item, err := range source.Items(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list the items of the backup: %w", err)
		}
		if err := b.take(&item); err != nil {
			return nil, err
		}
	}
	b.takeHeldBack()
	b.sort()
	b.dropDuplicates()
	b.index()
	b.plan.graph, b.plan.notes = build(b.plan, b.hints, b.plan.notes)
	b.forget()
	return b.plan, nil
}

type builder struct {
	config     Config
	plan       *Plan
	kinds      map[schema.GroupResource]int32
	namespaces map[string]int32
	needed     map[string]bool    // namespaces that selected objects live in
	claims     map[[2]string]bool // selected PersistentVolumeClaims
	hints      *hints
	// Decided once everything else is known: Namespaces, and volumes that are not selected by themselves.
	spaces  []manifest.Item
	volumes []manifest.Item
}

// take adds an item if it is selected.
func (b *builder) take(item *manifest.Item) error {
	if !item.Preferred {
		return nil // a copy in another version; Velero restores the preferred one too
	}
	if item.Name == "" || item.Resource == "" || item.Kind == "" {
		return fmt.Errorf("item %q of the backup has no name, resource or kind", item.Path)
	}
	if len(b.plan.nodes) == math.MaxInt32/2 {
		return fmt.Errorf("the backup holds more than %d objects", math.MaxInt32/2)
	}
	gr := schema.GroupResource{Group: item.Group, Resource: item.Resource}
	switch {
	case gr.String() == namespacesResource:
		b.spaces = append(b.spaces, *item)
	case b.selected(item, gr):
		b.add(item, gr)
	case gr.String() == volumesResource && !b.config.NoClusterResources:
		b.volumes = append(b.volumes, *item)
	default:
		b.keep(item, gr)
	}
	return nil
}

// keep holds an item in reserve. Definitions are not: what they define was looked for before any action is asked.
func (b *builder) keep(item *manifest.Item, gr schema.GroupResource) {
	if !b.config.Reserve || gr.String() == definitionsResource || !b.config.admits(gr, item.Namespace) {
		return
	}
	b.put(item, gr)
	b.plan.nodes[len(b.plan.nodes)-1].reserve = true
}

func (b *builder) selected(item *manifest.Item, gr schema.GroupResource) bool {
	if slices.Contains(nonRestorable, gr.String()) || !b.config.Filter.Resource(gr, item.Namespace != "") {
		return false
	}
	if item.Namespace != "" && !b.config.Filter.Namespace(item.Namespace) {
		return false
	}
	return b.config.Filter.MatchesLabels(labels.Set(item.Labels))
}

func (b *builder) add(item *manifest.Item, gr schema.GroupResource) {
	if item.Namespace != "" {
		b.needed[item.Namespace] = true
		if gr.String() == claimsResource {
			b.claims[[2]string{item.Namespace, item.Name}] = true
		}
	}
	b.put(item, gr)
}

// put makes a node of an item.
func (b *builder) put(item *manifest.Item, gr schema.GroupResource) {
	kind, ok := b.kinds[gr]
	if !ok {
		kind = int32(len(b.plan.kinds))
		b.kinds[gr] = kind
		b.plan.kinds = append(b.plan.kinds, Kind{
			GVK:      schema.GroupVersionKind{Group: item.Group, Version: item.Version, Kind: item.Kind},
			Resource: item.Resource, Namespaced: item.Namespace != "", rank: rank(gr.String()), name: gr.String(),
			role: roleOf(schema.GroupKind{Group: item.Group, Kind: item.Kind}),
		})
	}
	b.hints.take(item, gr, b.config.Claim)
	b.plan.nodes = append(b.plan.nodes, newNode(item, kind, b.namespace(item.Namespace)))
}

func (b *builder) namespace(name string) int32 {
	if name == "" {
		return -1
	}
	if i, ok := b.namespaces[name]; ok {
		return i
	}
	i := int32(len(b.plan.namespaces))
	name = strings.Clone(name)
	b.namespaces[name] = i
	b.plan.namespaces = append(b.plan.namespaces, Namespace{Source: name, Target: b.config.Map(name)})
	return i
}

// takeHeldBack adds the Namespaces that selected objects live in or that are selected themselves, and the volumes that
// selected claims are bound to. Namespaces that only objects in reserve live in are in reserve, too.
func (b *builder) takeHeldBack() {
	for i := range b.volumes {
		item := &b.volumes[i]
		gr := schema.GroupResource{Resource: volumesResource}
		if b.config.Claim == nil || !b.config.Filter.Resource(gr, true) {
			continue // true: only the lists decide, not the scope
		}
		if namespace, name := b.config.Claim(item.Name); b.claims[[2]string{namespace, name}] {
			b.add(item, gr)
		} else {
			b.keep(item, gr)
		}
	}
	gr := schema.GroupResource{Resource: namespacesResource}
	for i := range b.spaces {
		item := &b.spaces[i]
		wanted := b.config.Filter.Resource(gr, false) && b.config.Filter.Namespace(item.Name) && b.config.Filter.MatchesLabels(labels.Set(item.Labels))
		if wanted || b.needed[item.Name] {
			b.add(item, gr)
		} else if _, used := b.namespaces[item.Name]; used { // by what is in reserve
			b.put(item, gr)
			b.plan.nodes[len(b.plan.nodes)-1].reserve = true
		}
	}
	for i := range b.plan.namespaces {
		b.plan.namespaces[i].reserve = !b.needed[b.plan.namespaces[i].Source]
	}
}

// sort numbers kinds, then nodes, in the order of dispatch.
func (b *builder) sort() {
	p := b.plan
	order := make([]int32, len(p.kinds)) // old kind index -> place
	perm := make([]int32, len(p.kinds))
	for i := range perm {
		perm[i] = int32(i)
	}
	slices.SortFunc(perm, func(x, y int32) int {
		return cmp.Or(cmp.Compare(p.kinds[x].rank, p.kinds[y].rank), cmp.Compare(p.kinds[x].name, p.kinds[y].name))
	})
	sorted := make([]Kind, len(perm))
	for place, old := range perm {
		sorted[place], order[old] = p.kinds[old], int32(place)
	}
	p.kinds = sorted
	p.places = make(map[string]int32, len(sorted))
	for i := range sorted {
		p.places[sorted[i].name] = int32(i)
	}
	for i := range p.nodes {
		p.nodes[i].kind = order[p.nodes[i].kind]
	}
	slices.SortStableFunc(p.nodes, b.compare)
}

func (b *builder) compare(x, y Node) int {
	if c := cmp.Compare(x.kind, y.kind); c != 0 {
		return c
	}
	if x.namespace != y.namespace {
		return strings.Compare(b.sourceOf(x), b.sourceOf(y))
	}
	return strings.Compare(x.Name, y.Name)
}

func (b *builder) sourceOf(n Node) string {
	if n.namespace < 0 {
		return ""
	}
	return b.plan.namespaces[n.namespace].Source
}

// dropDuplicates keeps the first of several items of one name.
func (b *builder) dropDuplicates() {
	b.plan.nodes = slices.CompactFunc(b.plan.nodes, func(x, y Node) bool {
		return x.kind == y.kind && x.namespace == y.namespace && x.Name == y.Name
	})
}

// index finds Namespace objects and the nodes that others refer to as owners.
func (b *builder) index() {
	p := b.plan
	referred := map[string]struct{}{}
	for i := range p.nodes {
		for _, l := range p.nodes[i].links {
			referred[l.uid] = struct{}{}
		}
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		if p.kinds[n.kind].name == namespacesResource {
			p.objects[n.Name] = int32(i)
		}
		if _, ok := referred[n.uid]; ok && n.uid != "" {
			n.owns = true
			p.owners[n.uid] = int32(i)
		}
		if n.reserve {
			p.reserve++
		}
	}
}

// forget drops what only building needed.
func (b *builder) forget() {
	for i := range b.plan.nodes {
		b.plan.nodes[i].uid, b.plan.nodes[i].links = "", nil
	}
	b.plan.nodes = slices.Clip(b.plan.nodes)
}
