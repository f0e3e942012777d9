package plan

// Graph says which nodes wait for which. It has no cycles. Vertices up to Plan.Len are nodes; the others are gates: they
// stand for "all of these" and are passed as soon as nothing holds them.
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

// edge says that to waits for from.
type edge struct {
	from, to int32
	// owner tells that to could also be restored first and be given its owner later.
	owner bool
}

// build derives the graph of a plan whose nodes are in order.
func build(p *Plan, notes []Note) (Graph, []Note) {
	edges, vertices := gateEdges(p, ownerEdges(p))
	edges, broken := breakCycles(vertices, edges)
	for _, e := range broken {
		node, message := e.to, "waits for objects that wait for it: restored before them"
		if e.owner {
			message = "waits for its owner, which waits for it: restored first, the owner reference is added later"
		}
		if int(node) < len(p.nodes) {
			notes = append(notes, Note{Node: node, Message: message, Warning: true})
		}
	}
	return compile(vertices, edges), notes
}

// ownerEdges returns what owner references ask for, among objects of the last pass.
func ownerEdges(p *Plan) []edge {
	var edges []edge
	for i := range p.nodes {
		node := int32(i)
		if p.Class(node) != Other {
			continue
		}
		for _, l := range p.nodes[i].links {
			owner, ok := p.owners[l.uid]
			if !ok || owner == node || p.Class(owner) != Other || p.nodes[owner].reserve || p.nodes[i].reserve {
				continue
			}
			switch l.relation {
			case Hold:
				edges = append(edges, edge{from: owner, to: node, owner: true})
			case Late, Adopt:
				edges = append(edges, edge{from: node, to: owner})
			case Remake:
			}
		}
	}
	return edges
}

// gateEdges adds a vertex for each rule and namespace that has objects on both sides.
func gateEdges(p *Plan, edges []edge) ([]edge, int) {
	vertices := len(p.nodes)
	spans := kindSpans(p)
	for _, rule := range gates {
		before, after := spans[rule.before], spans[rule.after]
		gateOf := map[int32]int32{} // namespace, or -1 -> vertex
		if len(before) == 0 || len(after) == 0 {
			continue
		}
		for _, i := range before {
			namespace := p.nodes[i].namespace
			v, ok := gateOf[namespace]
			if !ok {
				v = int32(vertices)
				vertices++
				gateOf[namespace] = v
			}
			edges = append(edges, edge{from: i, to: v})
		}
		for _, i := range after {
			for _, namespace := range []int32{p.nodes[i].namespace, -1} {
				if v, ok := gateOf[namespace]; ok {
					edges = append(edges, edge{from: v, to: i})
				}
				if p.nodes[i].namespace < 0 {
					break
				}
			}
		}
	}
	return edges, vertices
}

// kindSpans returns the nodes of the kinds that gates name.
func kindSpans(p *Plan) map[string][]int32 {
	out := map[string][]int32{}
	for _, rule := range gates {
		out[rule.before], out[rule.after] = nil, nil
	}
	for i := range p.nodes {
		name := p.kinds[p.nodes[i].kind].name
		if span, ok := out[name]; ok {
			out[name] = append(span, int32(i))
		}
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
