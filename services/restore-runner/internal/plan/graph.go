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

// edgeBond is why a vertex waits for another one. Of a cycle the edge of the lowest bond is left out.
type edgeBond uint8

const (
	// toNamed is from an object to one that names it.
	toNamed edgeBond = iota
	// toPort is from a Service that keeps a node port to one whose ports are chosen.
	toPort edgeBond = iota
	// toOwner is from an owner to what it owns, which can also be restored first and be given its
	// owner later.
	toOwner
	// toStage is from an object to the gate of its namespace.
	toStage
	// fromStage is from such a gate to an object.
	fromStage
	// toOwned is from what is owned to its owner.
	toOwned
	// need is what the API server, or a controller, insists on.
	need
)

// graphEdge makes to wait for from.
type graphEdge struct {
	from, to int32
	bond     edgeBond
}

// graphDraft is a graph in the making.
type graphDraft struct {
	plan     *Plan
	hints    *edgeHints
	spans    []nodeSpan // of the nodes of the last pass, by kind
	edges    []graphEdge
	vertices int32
}

// nodeSpan is a run of nodes, without its end.
type nodeSpan struct{ from, to int32 }

// nodesOf returns the nodes of a kind, by its name.
func (d *graphDraft) nodesOf(name string) nodeSpan {
	if k, ok := d.plan.places[name]; ok {
		return d.spans[k]
	}
	return nodeSpan{}
}

// addGate adds a vertex without a node, which is done when its predecessors are.
func (d *graphDraft) addGate() int32 {
	d.vertices++
	return d.vertices - 1
}

func (d *graphDraft) addEdge(from, to int32, b edgeBond) {
	d.edges = append(d.edges, graphEdge{from: from, to: to, bond: b})
}

// buildGraph derives the graph of a plan whose nodes are in order.
func buildGraph(p *Plan, h *edgeHints, notes []Note) (Graph, []Note) {
	d := &graphDraft{plan: p, hints: h, spans: kindSpans(p), vertices: int32(len(p.nodes))}
	d.drawEdges()
	d.dropBackwardEdges()
	var broken []graphEdge
	d.edges, broken = breakCycles(int(d.vertices), d.edges)
	notes = append(notes, noteCutEdges(p, broken)...)
	d.addBarriers()
	return compileGraph(int(d.vertices), d.edges), notes
}

// drawEdges adds the edges of the order that was asked for.
func (d *graphDraft) drawEdges() {
	d.chainRivals()
	if d.plan.order == restoreorder.Velero {
		d.chainResources()
		return
	}
	d.assignPhases()
	d.addVolumeEdges()
	d.addSourceEdges()
	d.addObjectEdges()
	d.addRuleGates()
	d.addQuotaGates()
	d.addPortEdges()
	d.addConversionEdges()
	if d.plan.order != restoreorder.Owners {
		d.addStageGates()
	}
}

// chainResources makes each resource wait for the one before it in Velero's list.
func (d *graphDraft) chainResources() {
	before := none
	for k := range d.plan.kinds {
		after := none
		for v := d.spans[k].from; v < d.spans[k].to; v++ {
			if after == none {
				after = d.addGate()
			}
			if before != none {
				d.addEdge(before, v, need)
			}
			d.addEdge(v, after, need)
		}
		if after != none {
			before = after
		}
	}
}

// addObjectEdges adds what owner references ask for, and what objects name in their bodies.
func (d *graphDraft) addObjectEdges() {
	p, kinds := d.plan, d.namedKinds()
	for node := range int32(p.Len()) {
		if p.Class(node) != Other || p.nodes[node].reserve {
			continue
		}
		reader := p.details.detailAt(p.nodes[node].at)
		reader.skipToLinks()
		for _, l := range reader.readLinks() {
			d.addOwnerEdge(node, p.ownerNodes[l.owner], l.relation)
		}
		if p.order != restoreorder.Owners {
			d.addNameEdges(node, d.hints.namesAt(reader.readNumber()), kinds)
		}
	}
}

// addOwnerEdge adds what an owner reference asks for, among objects of one phase. An owner that is created
// paused comes first, whatever it owns.
func (d *graphDraft) addOwnerEdge(node, owner int32, relation Relation) {
	p := d.plan
	if owner == none || owner == node || p.Class(owner) != Other || p.nodes[owner].reserve || d.phaseOf(node) != d.phaseOf(owner) {
		return
	}
	switch {
	case p.Kind(owner).paused:
		d.addEdge(owner, node, toOwner)
	case relation == Remake:
	case relation == Adopt, relation == Late && p.order != restoreorder.Owners:
		d.addEdge(node, owner, toOwned)
	default:
		d.addEdge(owner, node, toOwner)
	}
}

// noteCutEdges returns the remarks about edges that were left out.
func noteCutEdges(p *Plan, broken []graphEdge) []Note {
	var notes []Note
	for _, e := range broken {
		node, message := e.to, "waits for objects that wait for it: restored before them"
		switch e.bond {
		case toNamed:
			message = "names an object that waits for it: restored before that one"
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
			notes = append(notes, Note{Node: node, Message: message, Warning: e.bond != toNamed})
		}
	}
	return notes
}

// kindSpans returns the nodes of each kind, none of those that have passes of their own.
func kindSpans(p *Plan) []nodeSpan {
	out := make([]nodeSpan, len(p.kinds))
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

// compileGraph turns edges into adjacency.
func compileGraph(vertices int, edges []graphEdge) Graph {
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
