package plan

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// Collected is what is known once the first pass is over.
type Collected interface {
	// Collected returns the resources with at least one object, sorted.
	Collected() []schema.GroupResource
	// Namespaces returns the namespaces of collected objects, sorted.
	Namespaces() []string
	// BoundVolumes returns the volumes that collected claims name, sorted.
	BoundVolumes() []string
}

// Second plans the passes after the first: what they list depends on what was collected before.
type Second struct {
	Filter  *selection.Filter
	Catalog *resource.Catalog
}

// Units returns the units of the second pass.
func (s *Second) Units(c Collected) []Unit {
	return slices.Concat(s.definitionUnits(c), s.volumeUnits(c), s.namespaceUnits())
}

// RunPasses makes the second pass and later ones, until no new object calls for one. items may be nil.
func (s *Second) RunPasses(c interface {
	Collected
	// Extras reports whether objects were stored that no list selected.
	Extras() bool
}, items *itemset.Set, makePass func([]Unit) error) error {
	visited := map[string]bool{}
	isMet := func(res *resource.Resource, name string) bool {
		return items != nil && items.Result(itemset.KeyOf(res.Kind.GroupKind(), "", name)) != itemset.Unknown
	}
	for units := s.Units(c); len(units) > 0; {
		if err := makePass(units); err != nil {
			return err
		}
		for i := range units {
			visited[units[i].ID()] = true
		}
		units = nil
		if c.Extras() {
			units = slices.DeleteFunc(s.lateUnits(c, isMet), func(u Unit) bool { return visited[u.ID()] })
		}
	}
	return nil
}

// lateUnits returns the units that objects call for which no list selected, in a later pass:
// definitions, volumes and namespaces. Objects that were met are left out.
func (s *Second) lateUnits(c Collected, met func(res *resource.Resource, name string) bool) []Unit {
	out := s.definitionUnits(c)
	if u, ok := s.boundVolume(); ok {
		out = append(out, unmetUnits(u, c.BoundVolumes(), met)...)
	}
	if res, ok := s.Catalog.Lookup(Namespaces); ok {
		out = append(out, unmetUnits(Unit{Res: res, Role: NamespaceObjects}, c.Namespaces(), met)...)
	}
	return out
}

// unmetUnits returns such a unit for each object of a cluster-scoped kind that was not met.
func unmetUnits(u Unit, names []string, met func(res *resource.Resource, name string) bool) []Unit {
	var out []Unit
	for _, name := range names {
		if !met(&u.Res, name) {
			u.Fields = "metadata.name=" + name
			out = append(out, u)
		}
	}
	return out
}

// namespaceUnits returns the unit of Namespace objects. They are read even if the filters do not select
// them: a namespace asked for by name must exist, and those of collected objects are stored.
func (s *Second) namespaceUnits() []Unit {
	res, ok := s.Catalog.Lookup(Namespaces)
	if !ok {
		return nil
	}
	return []Unit{{Res: res, Role: NamespaceObjects}}
}

// definitionUnits returns a unit for the definition of each collected custom resource, where the
// filters leave it to what was collected.
func (s *Second) definitionUnits(c Collected) []Unit {
	res, ok := s.Catalog.Lookup(Definitions)
	if !ok || !s.Filter.DefinitionsOnDemand() {
		return nil
	}
	var out []Unit
	for _, gr := range c.Collected() {
		// A definition is named after its resource; its group has a dot.
		if strings.Contains(gr.Group, ".") && gr != Definitions {
			out = append(out, Unit{Res: res, Role: Definition, Fields: "metadata.name=" + gr.String()})
		}
	}
	return slices.Clip(out)
}

// NamedLists is up to how many objects a list for each is cheaper than one of them all.
const NamedLists = 16

// volumeUnits returns the units of the volumes that collected claims are bound to, where the first pass
// did not list all volumes and the filters do not exclude them: a claim that is restored without
// its volume would stay unbound (Velero 1.18: action velero.io/pv, which ignores labels).
func (s *Second) volumeUnits(c Collected) []Unit {
	u, ok := s.boundVolume()
	if !ok {
		return nil
	}
	names := c.BoundVolumes()
	if len(names) > NamedLists {
		return []Unit{u}
	}
	out := make([]Unit, len(names))
	for i, name := range names {
		out[i] = u
		out[i].Fields = "metadata.name=" + name
	}
	return out
}

// boundVolume returns what the units of bound volumes have in common; false if there are none. What
// the first pass listed by its labels is not theirs.
func (s *Second) boundVolume() (u Unit, ok bool) {
	u = Unit{Role: BoundVolume}
	if u.Res, ok = s.Catalog.Lookup(Volumes); !ok || s.Filter.ExcludesResource(Volumes, false) {
		return u, false
	}
	if s.Filter.Resource(Volumes, false) {
		u.Before = s.Filter.Selectors()
		return u, len(u.Before) > 0
	}
	return u, true
}
