package plan

// chainRivals finds the objects that go to one name, because their namespaces are mapped to one, and has
// each wait for the one before it in the order of the namespaces' names in the backup: the first is
// restored, whatever runs in parallel.
func (d *graphDraft) chainRivals() {
	p := d.plan
	sources := map[string]int{} // by target
	for i := range p.namespaces {
		sources[p.namespaces[i].Target]++
	}
	type name struct{ target, name string }
	last := map[name]int32{} // of one kind: nodes are sorted by their kinds
	for i := range p.nodes {
		v := int32(i)
		if i > 0 && p.nodes[i].kind != p.nodes[i-1].kind {
			clear(last)
		}
		n := name{target: p.Target(v)}
		if p.Class(v) == NamespaceObject {
			n.target = p.MapNamespace(p.Name(v))
		}
		if sources[n.target] < 2 {
			continue
		}
		if p.Class(v) != NamespaceObject {
			n.name = p.Name(v)
		}
		if before, ok := last[n]; ok {
			if p.rivals == nil {
				p.rivals, p.behind = map[int32]int32{}, map[int32]int32{}
			}
			p.rivals[v], p.behind[before] = before, v
			if p.Class(v) == Other {
				d.addEdge(before, v, need)
			}
		}
		last[n] = v
	}
}

// RivalBefore returns the object that is restored to the name of node i before it, because their
// namespaces are mapped to one; false when there is none.
func (p *Plan) RivalBefore(i int32) (int32, bool) {
	before, ok := p.rivals[i]
	return before, ok
}

// RivalAfter returns the object that is restored to the name of node i after it; false when there is
// none.
func (p *Plan) RivalAfter(i int32) (int32, bool) {
	after, ok := p.behind[i]
	return after, ok
}
