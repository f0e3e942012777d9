package plan

import (
	"encoding/json"

	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// Known is what other lists found.
type Known interface {
	// Holds reports whether an object of the namespace was collected.
	Holds(namespace string) bool
	// Bound reports whether a collected claim names that volume.
	Bound(volume string) bool
}

// Selects decides on an object of the unit, of which raw is the JSON, or that of its metadata alone.
func (u *Unit) Selects(f *selection.Filter, known Known, m *objmeta.Meta, raw []byte) bool {
	object := selection.Object{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Deleting: m.Deleting()}
	if u.Role == NamespaceObjects {
		return f.NamespaceObject(object, isActive(raw), known.Holds(m.Name))
	}
	if u.Role == BoundVolume && !known.Bound(m.Name) {
		return false
	}
	for _, other := range u.Before {
		if other.Matches(m.Labels) {
			return false
		}
	}
	return f.Item(object)
}

// isActive reports that a Namespace is not being deleted. Where only its metadata is known, that says it too.
func isActive(raw []byte) bool {
	var ns struct {
		Status struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}
	return json.Unmarshal(raw, &ns) == nil && ns.Status.Phase != "Terminating"
}
