package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// heldRights are the ClusterRoleBindings and ClusterRoles that are not selected by themselves. They come with
// the accounts that they grant rights to, as a backup takes them with these.
type heldRights struct {
	bindings []heldBinding
	roles    []manifest.Item
	accounts map[objectPlace]bool // selected ServiceAccounts
	granted  map[objectPlace]bool // roles that bindings of the restore name
}

type heldBinding struct {
	item     manifest.Item
	role     objectPlace
	accounts []objectPlace
}

func newHeldRights() *heldRights {
	return &heldRights{accounts: map[objectPlace]bool{}, granted: map[objectPlace]bool{}}
}

// takeSelected notes an account that is selected, or what a selected binding grants.
func (h *heldRights) takeSelected(item *manifest.Item, gr schema.GroupResource) {
	switch gr.String() {
	case "serviceaccounts":
		h.accounts[clonePlace(item.Namespace, item.Name)] = true
	case clusterRoleBindingsResource, roleBindingsResource:
		h.granted[newHeldBinding(item).role] = true
	}
}

func newHeldBinding(item *manifest.Item) heldBinding {
	b := heldBinding{item: leanItem(item)}
	for i := range item.References {
		switch r := &item.References[i]; r.Relation {
		case reference.GrantsTo:
			b.accounts = append(b.accounts, clonePlace(r.Namespace, r.Name))
		case reference.Grants:
			b.role = clonePlace(r.Namespace, r.Name)
		}
	}
	return b
}

// takeRights adds what grants rights to selected accounts, if the lists of resources let it in.
func (b *planBuilder) takeRights() error {
	for i := range b.rights.bindings {
		binding := &b.rights.bindings[i]
		wanted := slices.ContainsFunc(binding.accounts, func(a objectPlace) bool { return b.rights.accounts[a] })
		brought, err := b.takeCompanion(&binding.item, wanted)
		if err != nil {
			return err
		}
		if brought {
			b.rights.granted[binding.role] = true
		}
	}
	for i := range b.rights.roles {
		item := &b.rights.roles[i]
		if _, err := b.takeCompanion(item, b.rights.granted[objectPlace{item.Namespace, item.Name}]); err != nil {
			return err
		}
	}
	return nil
}

func (b *planBuilder) takeCompanion(item *manifest.Item, wanted bool) (brought bool, err error) {
	gr := schema.GroupResource{Group: item.Group, Resource: item.Resource}
	filter, parts := b.config.Filter, b.config.Parts
	switch {
	case !wanted, !filter.Resource(gr, true), parts != nil && !parts.bringsRights(): // true: only the lists decide, not the scope
		return false, b.leaveOut(item, gr)
	case item.Namespace == "":
	case filter.Namespace(item.Namespace) && filter.MatchesLabels(labels.Set(item.Labels)):
		return true, b.addItem(item, gr)
	default:
		return false, b.leaveOut(item, gr)
	}
	if err = b.putNode(item, gr, false); err == nil {
		b.plan.nodes[len(b.plan.nodes)-1].companion = true
	}
	return err == nil, err
}

// leaveOut holds an item that is not selected in reserve, and counts it if the scope alone leaves it out.
func (b *planBuilder) leaveOut(item *manifest.Item, gr schema.GroupResource) error {
	filter := b.config.Filter
	if item.Namespace == "" && !b.config.NoClusterResources && !slices.Contains(selection.NonRestorable, gr.String()) &&
		!filter.Resource(gr, false) && filter.Resource(gr, true) && filter.MatchesLabels(labels.Set(item.Labels)) && b.config.Parts.takesItem(item) {
		b.leftOut[strings.Clone(gr.String())]++
	}
	return b.keepReserve(item, gr)
}

// noteLeftOut says how many objects the scope alone leaves out, and what brings them.
func (b *planBuilder) noteLeftOut() {
	var kinds []string
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(b.leftOut)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", b.leftOut[kind], kind))
		total += b.leftOut[kind]
	}
	if total > 0 {
		b.plan.notes = append(b.plan.notes, Note{Node: none, Message: fmt.Sprintf(
			"cluster-scoped objects of the backup that are left out, since the restore is of some namespaces: %d (%s); spec.includeClusterResources: true restores them", total, strings.Join(kinds, ", "))})
	}
}

// Companion reports that object i is restored for the accounts that it grants rights to, although the filters
// leave it out.
func (p *Plan) Companion(i int32) bool { return p.nodes[i].companion }
