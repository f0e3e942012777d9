package collect

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/reference"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

var (
	namespaceGR  = schema.GroupResource{Resource: "namespaces"}
	definitionGR = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	podGR        = schema.GroupResource{Resource: "pods"}
	claimGR      = schema.GroupResource{Resource: "persistentvolumeclaims"}
	volumeGR     = schema.GroupResource{Resource: "persistentvolumes"}
)

// unit is one list.
type unit struct {
	res       resource.Resource
	namespace string // "" for all namespaces, or a cluster-scoped kind
	selector  labels.Selector
	// before are the selectors of other units over the same objects: what they
	// match is theirs.
	before []labels.Selector
	fields string
	// role is set where more than the filter decides on an object.
	role role
}

type role int

const (
	plain role = iota
	namespaceObjects
	definition
	boundVolume
)

// id names the unit in checkpoints: it is the same in every run of the backup.
func (u *unit) id() string {
	var b strings.Builder
	b.WriteString(u.res.String())
	if u.namespace != "" {
		b.WriteString("/" + u.namespace)
	}
	if len(u.before) > 0 {
		fmt.Fprintf(&b, "#%d", len(u.before))
	}
	if u.fields != "" {
		b.WriteString("?" + u.fields)
	}
	return b.String()
}

func (u *unit) selectorText() string {
	if u.selector == nil {
		return ""
	}
	return u.selector.String()
}

// references returns what finds references in the unit's objects, nil if there
// is nothing to find.
func (u *unit) references() *reference.Finder {
	if u.res.Custom {
		return reference.ForCustom(u.res.GroupResource())
	}
	return reference.For(u.res.Kind.GroupKind())
}

// namespaces returns the unit of Namespace objects. They are read even if they
// are not collected: a namespace asked for by name must exist.
func (r *run) namespaces() []unit {
	res, ok := r.Catalog.Lookup(namespaceGR)
	if !ok {
		return nil
	}
	return []unit{{res: res, role: namespaceObjects}}
}

// definitions returns a unit for the definition of each collected custom
// resource, where the filters leave it to what was collected.
func (r *run) definitions() []unit {
	res, ok := r.Catalog.Lookup(definitionGR)
	if !ok || !r.Filter.DefinitionsOnDemand() {
		return nil
	}
	var out []unit
	for _, gr := range r.facts.collected() {
		// A definition is named after its resource; its group has a dot.
		if strings.Contains(gr.Group, ".") && gr != definitionGR {
			out = append(out, unit{res: res, role: definition, fields: "metadata.name=" + gr.String()})
		}
	}
	return slices.Clip(out)
}

// namedLists is up to how many objects a list for each is cheaper than one of
// them all.
const namedLists = 16

// volumes returns the units of the volumes that collected claims are bound to,
// where the first pass did not list all volumes and the filters do not exclude them:
// a claim that is restored without its volume would wait for it for ever (Velero
// 1.18: action velero.io/pv, which does not look at labels).
func (r *run) volumes() []unit {
	u, ok := r.boundVolume()
	if !ok {
		return nil
	}
	names := r.facts.boundVolumes()
	if len(names) > namedLists {
		return []unit{u}
	}
	out := make([]unit, len(names))
	for i, name := range names {
		out[i] = u
		out[i].fields = "metadata.name=" + name
	}
	return out
}

// boundVolume returns what the units of bound volumes have in common; false if
// there are none. What the first pass listed by its labels is not theirs.
func (r *run) boundVolume() (u unit, ok bool) {
	u = unit{role: boundVolume}
	if u.res, ok = r.Catalog.Lookup(volumeGR); !ok || r.Filter.ExcludesResource(volumeGR, false) {
		return u, false
	}
	if r.Filter.Resource(volumeGR, false) {
		u.before = r.Filter.Selectors()
		return u, len(u.before) > 0
	}
	return u, true
}

// late returns the units that what actions asked for calls for, after the second
// pass: definitions, volumes and namespaces of objects that came since.
func (r *run) late(visited map[string]bool) []unit {
	if !r.extras.Load() {
		return nil
	}
	out := r.definitions()
	if u, ok := r.boundVolume(); ok {
		out = append(out, r.named(u, r.facts.boundVolumes())...)
	}
	if res, ok := r.Catalog.Lookup(namespaceGR); ok && r.Filter.Resource(namespaceGR, false) {
		out = append(out, r.named(unit{res: res, role: namespaceObjects}, r.facts.held())...)
	}
	return slices.DeleteFunc(out, func(u unit) bool { return visited[u.id()] })
}

// named returns such a unit for each object of a cluster-scoped kind that nobody met.
func (r *run) named(u unit, names []string) []unit {
	var out []unit
	for _, name := range names {
		if r.bound.register.Fate(known.KeyOf(u.res.Kind.GroupKind(), "", name)) == known.Unknown {
			u.fields = "metadata.name=" + name
			out = append(out, u)
		}
	}
	return out
}
