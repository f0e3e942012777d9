package plan

import "github.com/holdfast-io/holdfast/pkg/spec/restoreorder"

// Graph is the order of nodes. It has no cycles. Vertices up to Plan.Len are nodes; the others are
// gates, which are done as soon as all their predecessors are.
type Graph struct {
	indegree   []int32
	first      []int32 // of the successors of each vertex
	successors []int32
}

// Vertices is the number of nodes and gates.
func (g *Graph) Vertices() int { return len(g.indegree) }

// Indegree returns how many predecessors each vertex has. The caller owns the slice.
func (g *Graph) Indegree() []int32 { return append([]int32(nil), g.indegree...) }

// Successors returns the vertices that wait for v. The caller must not change it.
func (g *Graph) Successors(v int32) []int32 { return g.successors[g.first[v]:g.first[v+1]] }

// bond is why a vertex waits for another one. Of a cycle the edge of the lowest bond is left out.
type bond uint8

const (
	// toOwner is from an owner to what it owns, which can also be restored first and be given its
	// owner later.
	toOwner bond = iota
	// toStage is from an object to the gate of its namespace.
	toStage
	// fromStage is from such a gate to an object.
	fromStage
	// toOwned is from what is owned to its owner.
	toOwned
	// need is what the API server, or a controller, insists on.
	need
)

// edge makes to wait for from.
type edge struct {
	from, to int32
	bond     bond
}

// draft is a graph in the making.
type draft struct {
	plan     *Plan
	hints    *hints
	spans    []span // of the nodes of the last pass, by kind
	edges    []edge
	vertices int32
}

// span is a run of nodes, without its end.
type span struct{ from, to int32 }

// of returns the nodes of a kind, by its name.
func (d *draft) of(name string) span {
	if k, ok := d.plan.places[name]; ok {
		return d.spans[k]
	}
	return span{}
}

// gate adds a vertex without a node, which is done when its predecessors are.
func (d *draft) gate() int32 {
	d.vertices++
	return d.vertices - 1
}

func (d *draft) add(from, to int32, b bond) {
	d.edges = append(d.edges, edge{from: from, to: to, bond: b})
}

// build derives the graph of a plan whose nodes are in order.
func build(p *Plan, h *hints, notes []Note) (Graph, []Note) {
	d := &draft{plan: p, hints: h, spans: kindSpans(p), vertices: int32(len(p.nodes))}
	d.draw()
	d.forward()
	var broken []edge
	d.edges, broken = breakCycles(int(d.vertices), d.edges)
	notes = append(notes, cuts(p, broken)...)
	d.barriers()
	return compile(int(d.vertices), d.edges), notes
}

// draw adds the edges of the order that was asked for.
func (d *draft) draw() {
	d.rivals()
	if d.plan.order == restoreorder.Velero {
		d.list()
		return
	}
	d.phases()
	d.volumes()
	d.sources()
	d.owners()
	d.rules()
	d.conversions()
	if d.plan.order != restoreorder.Owners {
		d.stages()
	}
}

// list makes each resource wait for the one before it in Velero's list.
func (d *draft) list() {
	before := none
	for k := range d.plan.kinds {
		after := none
		for v := d.spans[k].from; v < d.spans[k].to; v++ {
			if after == none {
				after = d.gate()
			}
			if before != none {
				d.add(before, v, need)
			}
			d.add(v, after, need)
		}
		if after != none {
			before = after
		}
	}
}

// owners adds what owner references ask for, among objects of one phase. An owner that is created
// paused comes first, whatever it owns.
func (d *draft) owners() {
	p := d.plan
	for node := range int32(p.Len()) {
		if p.Class(node) != Other {
			continue
		}
		reader := p.details.detailAt(p.nodes[node].at)
		_ = reader.readDetail()
		for _, l := range reader.readLinks() {
			owner := p.ownerNodes[l.owner]
			if owner == none || owner == node || p.Class(owner) != Other || p.nodes[owner].reserve || p.nodes[node].reserve || d.phaseOf(node) != d.phaseOf(owner) {
				continue
			}
			switch {
			case p.Kind(owner).paused:
				d.add(owner, node, toOwner)
			case l.relation == Remake:
			case l.relation == Adopt, l.relation == Late && p.order != restoreorder.Owners:
				d.add(node, owner, toOwned)
			default:
				d.add(owner, node, toOwner)
			}
		}
	}
}

// cuts are the remarks about edges that were left out.
func cuts(p *Plan, broken []edge) []Note {
	var notes []Note
	for _, e := range broken {
		node, message := e.to, "waits for objects that wait for it: restored before them"
		switch e.bond {
		case toOwner:
			message = "waits for its owner, which waits for it: restored first, the owner reference is added later"
		case toOwned:
			message = "an object that it owns waits for it: restored before that one, the owner reference is added later"
		case toStage:
			node, message = e.from, "waits for an object of its namespace that waits for it: restored after the first workloads and custom resources there"
		case fromStage, need:
		}
		if int(node) >= p.Len() {
			node = e.from
		}
		if int(node) < p.Len() {
			notes = append(notes, Note{Node: node, Message: message, Warning: true})
		}
	}
	return notes
}

// kindSpans returns the nodes of each kind, none of those that have passes of their own.
func kindSpans(p *Plan) []span {
	out := make([]span, len(p.kinds))
	for i := range int32(len(p.nodes)) {
		if p.Class(i) != Other {
			continue
		}
		s := &out[p.nodes[i].kind]
		if s.to == 0 {
			s.from = i
		}
		s.to = i + 1
	}
	return out
}

// compile turns edges into adjacency.
func compile(vertices int, edges []edge) Graph {
	g := Graph{indegree: make([]int32, vertices), first: make([]int32, vertices+1), successors: make([]int32, len(edges))}
	for _, e := range edges {
		g.indegree[e.to]++
		g.first[e.from+1]++
	}
	for v := range vertices {
		g.first[v+1] += g.first[v]
	}
	next := append([]int32(nil), g.first[:vertices]...)
	for _, e := range edges {
		g.successors[next[e.from]] = e.to
		next[e.from]++
	}
	return g
}
