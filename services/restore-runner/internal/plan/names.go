package plan

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
)

// objectName is an object that another one names: an index of edgeHints.named, namespace and name in the
// backup. The namespace is ownNamespace where it is that of the other one.
type objectName struct {
	kind            int32
	namespace, name string
}

const ownNamespace = "."

// Names are kept up to so many bytes for each object so far, and spare ones: kinds of custom groups, which
// name most, come before the core group. Memory is bounded whatever a backup says.
const (
	nameBytes      = 64
	spareNameBytes = 4 << 20
)

// takeNames keeps what an item names and has to wait for, and returns its number, 0 for nothing. Other rules order the rest: volumes and what
// fills them, definitions, token Secrets, roles. What waits for the material of its namespace by itself
// names nothing else; material and guards come as early as they can, and snapshots before claims.
func (h *edgeHints) takeNames(item *manifest.Item, role kindRole, nodes int) int32 {
	if role != roleNone && role != roleCustom || item.Group == "snapshot.storage.k8s.io" || item.Group == "velero.io" {
		return 0
	}
	var names []byte
	for i := range item.References {
		r := &item.References[i]
		switch r.Relation {
		case reference.DefinedBy, reference.Binds, reference.FilledFrom, reference.Calls, reference.Holds, reference.Grants:
			continue
		}
		if h.taken+len(names) > nodes*nameBytes+spareNameBytes {
			h.dropped++
			continue
		}
		namespace := r.Namespace
		if namespace == item.Namespace {
			namespace = ownNamespace
		}
		names = binary.AppendVarint(names, int64(h.numberOf(schema.GroupKind{Group: r.Group, Kind: r.Kind})))
		names = appendText(appendText(names, namespace), r.Name)
	}
	if len(names) == 0 {
		return 0
	}
	h.taken += len(names)
	h.at = append(h.at, h.names.add(binary.AppendVarint(names, endOfNames)))
	return int32(len(h.at)) //nolint:gosec // at most one for each node
}

// noteDropped says how many names do not count.
func (b *planBuilder) noteDropped() {
	if b.hints.dropped > 0 && b.config.Order != restoreorder.Velero && b.config.Order != restoreorder.Owners {
		b.plan.notes = append(b.plan.notes, Note{Node: none, Message: fmt.Sprintf(
			"the backup has more references between objects than are kept: %d do not count for the order", b.hints.dropped)})
	}
}

// endOfNames follows the names of a node.
const endOfNames = -1

// namesAt returns what was kept under a number.
func (h *edgeHints) namesAt(number int64) (names []objectName) {
	if number == 0 {
		return nil
	}
	reader := h.names.detailAt(h.at[number-1])
	for kind := reader.readNumber(); kind != endOfNames; kind = reader.readNumber() {
		names = append(names, objectName{kind: int32(kind), namespace: string(reader.readText()), name: string(reader.readText())}) //nolint:gosec // as it was
	}
	return names
}

// numberOf returns the number of a kind that is named.
func (h *edgeHints) numberOf(kind schema.GroupKind) int32 {
	number, known := h.numbers[kind]
	if !known && len(h.named) < math.MaxInt32 {
		kind = schema.GroupKind{Group: strings.Clone(kind.Group), Kind: strings.Clone(kind.Kind)}
		number = int32(len(h.named)) //nolint:gosec // just compared
		h.numbers[kind] = number
		h.named = append(h.named, kind)
	}
	return number
}

// namedKinds returns the kinds of the plan for each number of a kind that is named.
func (d *graphDraft) namedKinds() [][]int32 {
	out := make([][]int32, len(d.hints.named))
	for k := range d.plan.kinds {
		if number, ok := d.hints.numbers[d.plan.kinds[k].GVK.GroupKind()]; ok {
			out[number] = append(out[number], int32(k)) //nolint:gosec // the builder has bounded it
		}
	}
	return out
}

// addNameEdges makes a node wait for what it names, where the plan has it.
func (d *graphDraft) addNameEdges(node int32, names []objectName, kinds [][]int32) {
	for i := range names {
		n := &names[i]
		for _, k := range kinds[n.kind] {
			kind, namespace := &d.plan.kinds[k], n.namespace
			switch {
			case !kind.Namespaced:
				namespace = ""
			case namespace == ownNamespace:
				namespace = d.plan.Source(node)
			}
			if named, ok := d.plan.Find(kind.name, namespace, n.name); ok && d.waitsForNamed(node, named) {
				d.addEdge(named, node, toNamed)
			}
		}
	}
}

// waitsForNamed reports whether a node has to wait for an object that it names. Owner references decide
// about an object and what belongs to it, and stages where they have it wait anyway.
func (d *graphDraft) waitsForNamed(node, named int32) bool {
	p := d.plan
	if node == named || p.Class(named) != Other || p.nodes[named].reserve {
		return false
	}
	if p.Kind(named).role == roleMaterial && p.nodes[node].namespace == p.nodes[named].namespace && d.waitsForStage(node) {
		return false
	}
	return !d.isOwnedBy(named, node) && !d.isOwnedBy(node, named)
}

// waitsForStage reports whether a node comes after the material of its namespace.
func (d *graphDraft) waitsForStage(v int32) bool {
	kind := d.plan.Kind(v)
	return kind.role.actsOnObjects() && !kind.paused && !d.plan.nodes[v].early
}

// maxOwners is how many owners of owners are looked at.
const maxOwners = 64

// isOwnedBy reports whether a node has an owner, however far above it.
func (d *graphDraft) isOwnedBy(node, owner int32) bool {
	above := []int32{node}
	for i := 0; i < len(above) && i < maxOwners; i++ {
		reader := d.plan.details.detailAt(d.plan.nodes[above[i]].at)
		reader.skipToLinks()
		for _, l := range reader.readLinks() {
			switch v := d.plan.ownerNodes[l.owner]; v {
			case owner:
				return true
			case none:
			default:
				above = append(above, v)
			}
		}
	}
	return false
}
