package plan

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// Filter decides what is selected; pkg/spec/selection's is one.
type Filter interface {
	// Resource reports whether objects of the resource are selected.
	Resource(gr schema.GroupResource, namespaced bool) bool
	// Namespace reports whether the namespace, by its name in the backup, is selected.
	Namespace(name string) bool
	// MatchesLabels reports whether an object with these labels passes the label selectors.
	MatchesLabels(set labels.Labels) bool
}

// Config is what to select.
type Config struct {
	Filter Filter
	// Mapping gives the target of each namespace that is not restored under its own name.
	Mapping map[string]string
	// Claim returns namespace and name, as in the backup, of the claim that a PersistentVolume is
	// bound to. A volume whose claim is selected is selected with it, unless NoClusterResources.
	// Nil returns none.
	Claim func(volume string) (namespace, name string)
	// NoClusterResources is set if the restore excludes all cluster-scoped objects.
	NoClusterResources bool
	// Parts are what is taken of that which Filter selects; nil is all.
	Parts *Parts
	// Reserve keeps objects in the plan that are not selected: an action may name them as additional
	// items, and then they are restored.
	Reserve bool
	// Read returns the body of an item, where the place of its kind depends on it. Nil: all have the same
	// place.
	Read func(item manifest.Item) ([]byte, error)
	// Ports tells of the body of a Service whether node ports of it are kept, and whether the API server
	// chooses some. Nil: none are chosen.
	Ports func(body []byte) (kept, chosen bool)
	// Order is what comes first; the zero value is restoreorder.Stages.
	Order restoreorder.Order
	// Paused reports that objects of a kind are created paused: they come before what they own. Nil
	// reports none.
	Paused func(kind schema.GroupKind) bool
}

// admitsAdditional reports whether an object may be restored as an additional item of an action: the lists of
// resources and namespaces decide, labels and the scope do not.
func (c *Config) admitsAdditional(gr schema.GroupResource, namespace string) bool {
	if slices.Contains(selection.NonRestorable, gr.String()) || !c.Filter.Resource(gr, true) {
		return false
	}
	if namespace == "" {
		return !c.NoClusterResources
	}
	return c.Filter.Namespace(namespace) && c.Parts.admitsNamespace(namespace)
}

// Map returns the target of a namespace.
func (c *Config) Map(namespace string) string { return mappedNamespace(c.Mapping, namespace) }

func mappedNamespace(mapping map[string]string, namespace string) string {
	if target := mapping[namespace]; target != "" {
		return target
	}
	return namespace
}

// Build reads the listing of a backup once and plans its restore.
func Build(ctx context.Context, source Source, config Config) (*Plan, error) {
	b := &planBuilder{
		config: config, plan: &Plan{
			objects: map[string]int32{}, named: map[int32]bool{}, unselected: map[string]bool{}, owners: map[string]int32{}, mapping: config.Mapping, admits: config.admitsAdditional, claim: config.Claim, order: config.Order,
		},
		kinds: map[schema.GroupResource]int32{}, namespaces: map[string]int32{}, needed: map[string]bool{}, claims: map[[2]string]bool{},
		hints: newHints(), rights: newHeldRights(), leftOut: map[string]int{},
	}
	for item, err := range source.Items(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list the items of the backup: %w", err)
		}
		if err := b.takeItem(&item); err != nil {
			return nil, err
		}
	}
	if err := b.takeHeldBack(); err != nil {
		return nil, err
	}
	b.plan.sortNodes()
	b.noteParts()
	b.plan.graph, b.plan.notes = buildGraph(b.plan, b.hints, b.plan.notes)
	return b.plan, nil
}

type planBuilder struct {
	config     Config
	plan       *Plan
	kinds      map[schema.GroupResource]int32
	namespaces map[string]int32
	needed     map[string]bool    // namespaces that selected objects live in
	claims     map[[2]string]bool // selected PersistentVolumeClaims
	hints      *edgeHints
	encoded    []byte // the detail of one node
	// Decided once everything else is known: Namespaces, and volumes that are not selected by
	// themselves.
	spaces  []manifest.Item
	volumes []manifest.Item
	rights  *heldRights
	leftOut map[string]int // cluster-scoped objects that the scope alone leaves out, by resource
}

// takeItem adds an item if it is selected.
func (b *planBuilder) takeItem(item *manifest.Item) error {
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
		b.spaces = append(b.spaces, leanItem(item))
	case b.isSelected(item, gr):
		return b.addItem(item, gr)
	case b.config.Parts.bringsRights() && gr.String() == roleBindingsResource:
		b.rights.bindings = append(b.rights.bindings, newHeldBinding(item))
	case b.config.Parts.bringsRights() && gr.String() == rolesResource:
		b.rights.roles = append(b.rights.roles, leanItem(item))
	case b.config.NoClusterResources:
		return b.leaveOut(item, gr)
	case gr.String() == volumesResource:
		b.volumes = append(b.volumes, leanItem(item))
	case gr.String() == clusterRoleBindingsResource:
		b.rights.bindings = append(b.rights.bindings, newHeldBinding(item))
	case gr.String() == clusterRolesResource:
		b.rights.roles = append(b.rights.roles, leanItem(item))
	default:
		return b.leaveOut(item, gr)
	}
	return nil
}

// leanItem leaves out of an item what is not asked for later.
func leanItem(item *manifest.Item) manifest.Item {
	out := *item
	out.Annotations, out.HiddenAnnotations, out.References, out.Actions = nil, nil, nil, nil
	return out
}

// keepReserve holds an item in reserve. Definitions are not: what they define was looked for before any
// action is asked.
func (b *planBuilder) keepReserve(item *manifest.Item, gr schema.GroupResource) error {
	if !b.config.Reserve || gr.String() == definitionsResource || !b.config.admitsAdditional(gr, item.Namespace) {
		return nil
	}
	return b.putNode(item, gr, true)
}

// isSelected reports whether an item is restored for itself. DataUploads are not, and need no namespace: claims are
// filled with their data.
func (b *planBuilder) isSelected(item *manifest.Item, gr schema.GroupResource) bool {
	if gr == uploadsResource || slices.Contains(selection.NonRestorable, gr.String()) || !b.config.Filter.Resource(gr, item.Namespace != "") {
		return false
	}
	if item.Namespace != "" && !b.config.Filter.Namespace(item.Namespace) {
		return false
	}
	return b.config.Filter.MatchesLabels(labels.Set(item.Labels)) && b.config.Parts.takesItem(item)
}

func (b *planBuilder) addItem(item *manifest.Item, gr schema.GroupResource) error {
	b.rights.takeSelected(item, gr)
	if item.Namespace != "" {
		b.needed[item.Namespace] = true
		if gr.String() == claimsResource {
			b.claims[[2]string{item.Namespace, item.Name}] = true
		}
	}
	return b.putNode(item, gr, false)
}

// putNode makes a node of an item.
func (b *planBuilder) putNode(item *manifest.Item, gr schema.GroupResource, reserve bool) error {
	kind, ok := b.kinds[gr]
	if !ok {
		if len(b.plan.kinds) == math.MaxUint16 {
			return fmt.Errorf("the backup holds more than %d kinds", math.MaxUint16)
		}
		kind = int32(len(b.plan.kinds))
		b.kinds[gr] = kind
		of := schema.GroupKind{Group: item.Group, Kind: item.Kind}
		b.plan.kinds = append(b.plan.kinds, Kind{
			GVK:      schema.GroupVersionKind{Group: item.Group, Version: item.Version, Kind: item.Kind},
			Resource: item.Resource, Namespaced: item.Namespace != "", rank: resourceRank(gr.String()), name: gr.String(),
			role: roleOf(of), paused: b.config.Paused != nil && b.config.Paused(of),
		})
	}
	b.hints.takeReferences(item, gr, b.config.Claim)
	n := planNode{
		size: uint32(min(max(item.Size, 0), math.MaxUint32)), namespace: b.namespaceNumber(item.Namespace), kind: uint16(kind), reserve: reserve, scoped: isScopedQuota(item), bounds: b.takeBody(item, gr),
	}
	detail := b.plan.detailOf(item)
	detail.names = b.hints.takeNames(item, b.plan.kinds[kind].role, len(b.plan.nodes))
	b.encoded = appendDetail(b.encoded[:0], detail)
	n.at = b.plan.details.add(b.encoded)
	b.plan.nodes = append(b.plan.nodes, n)
	return nil
}

func (b *planBuilder) namespaceNumber(name string) int32 {
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

// takeHeldBack adds the Namespaces that selected objects live in or that are selected themselves,
// the volumes that selected claims are bound to, and what grants rights to selected accounts. Namespaces that only objects in reserve live
// in are in reserve, too.
func (b *planBuilder) takeHeldBack() error {
	if b.config.Parts.areClaims() {
		return nil
	}
	for i := range b.volumes {
		item := &b.volumes[i]
		gr := schema.GroupResource{Resource: volumesResource}
		if b.config.Claim == nil || !b.config.Filter.Resource(gr, true) {
			continue // true: only the lists decide, not the scope
		}
		take := b.leaveOut
		if namespace, name := b.config.Claim(item.Name); b.claims[[2]string{namespace, name}] {
			take = b.addItem
		}
		if err := take(item, gr); err != nil {
			return err
		}
	}
	if err := b.takeRights(); err != nil {
		return err
	}
	b.noteLeftOut()
	b.noteDropped()
	gr := schema.GroupResource{Resource: namespacesResource}
	for i := range b.spaces {
		item := &b.spaces[i]
		wanted := !item.Extra && b.config.Filter.Resource(gr, false) && b.config.Filter.Namespace(item.Name) && b.config.Filter.MatchesLabels(labels.Set(item.Labels)) && b.config.Parts.takesItem(item)
		_, used := b.namespaces[item.Name]
		if !wanted {
			b.plan.unselected[strings.Clone(item.Name)] = true
		}
		var err error
		if wanted || b.needed[item.Name] {
			err = b.addItem(item, gr)
		} else if used { // by what is in reserve
			err = b.putNode(item, gr, true)
		}
		if err != nil {
			return err
		}
	}
	for i := range b.plan.namespaces {
		b.plan.namespaces[i].reserve = !b.needed[b.plan.namespaces[i].Source]
	}
	return nil
}
