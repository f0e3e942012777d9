package plan

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// sortNodes numbers kinds and nodes in the order of dispatch: by rank and name of the kind, then by
// namespace and name in the backup. Of several items of one name the first is kept. It finds the
// Namespace objects, and the nodes that others refer to as owners.
func (p *Plan) sortNodes() {
	p.sortKinds()
	slices.SortFunc(p.nodes, func(a, b planNode) int {
		return cmp.Or(p.compareNodes(a, b), cmp.Compare(a.at.chunk, b.at.chunk), cmp.Compare(a.at.offset, b.at.offset))
	})
	p.nodes = slices.CompactFunc(p.nodes, func(a, b planNode) bool { return p.compareNodes(a, b) == 0 })
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.reserve {
			p.reserve++
		}
		reader := p.details.detailAt(n.at)
		name, uid := reader.readText(), reader.readText()
		if p.kinds[n.kind].name == namespacesResource {
			p.objects[string(name)] = int32(i)
		}
		var number int32
		if number, n.owns = p.owners[string(uid)]; n.owns {
			p.ownerNodes[number] = int32(i)
		}
	}
}

func (p *Plan) compareNodes(a, b planNode) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(p.sourceOf(a), p.sourceOf(b)), bytes.Compare(p.nameOf(a), p.nameOf(b)))
}

// sortKinds brings the kinds into the order of dispatch.
func (p *Plan) sortKinds() {
	order := make([]uint16, len(p.kinds))
	for i := range order {
		order[i] = uint16(i) //nolint:gosec // the builder has bounded it
	}
	slices.SortStableFunc(order, func(a, b uint16) int { // two kinds may have one name
		return cmp.Or(cmp.Compare(p.kinds[a].rank, p.kinds[b].rank), strings.Compare(p.kinds[a].name, p.kinds[b].name))
	})
	p.places = make(map[string]int32, len(order))
	sorted, moved := make([]Kind, len(order)), make([]uint16, len(order))
	for to, from := range order {
		sorted[to], moved[from] = p.kinds[from], uint16(to) //nolint:gosec // the builder has bounded it
		p.places[sorted[to].name] = int32(to)
	}
	p.kinds = sorted
	for i := range p.nodes {
		p.nodes[i].kind = moved[p.nodes[i].kind]
	}
}
