package plan

import "strings"

// passPhase is a part of the last pass that begins when the one before it has ended.
type passPhase uint8

const (
	// phaseMain is everything else.
	phaseMain passPhase = iota
	// phaseAPI is that of APIServices: until what serves them runs, the API server waits for them.
	phaseAPI
	// phaseServed is that of objects that such an API serves.
	phaseServed
	// phaseAdmission is that of what judges the requests for all others.
	phaseAdmission
	phaseCount
)

// assignPhases returns the phase of each kind, and keeps it. Single nodes of phaseAdmission may belong to
// phaseMain.
func (d *graphDraft) assignPhases() {
	for k := range d.plan.kinds {
		kind := &d.plan.kinds[k]
		switch {
		case kind.role == roleAdmission:
			kind.phase = phaseAdmission
		case kind.role == roleAPI:
			kind.phase = phaseAPI
		case d.hints.served[kind.GVK.Group]:
			kind.phase = phaseServed
		}
	}
}

// phaseOf returns when a vertex comes; gates come with the main part.
func (d *graphDraft) phaseOf(v int32) passPhase {
	if int(v) >= len(d.plan.nodes) || d.plan.nodes[v].scoped || d.plan.nodes[v].bounds {
		return phaseMain
	}
	return d.plan.kinds[d.plan.nodes[v].kind].phase
}

// dropBackwardEdges leaves out edges from a later phase to an earlier one.
func (d *graphDraft) dropBackwardEdges() {
	kept := d.edges[:0]
	for _, e := range d.edges {
		if d.phaseOf(e.from) <= d.phaseOf(e.to) {
			kept = append(kept, e)
		}
	}
	d.edges = kept
}

// addBarriers makes each phase wait for all of the one before: for those vertices of it that nothing
// else of it waits for.
func (d *graphDraft) addBarriers() {
	var present [phaseCount]bool
	last := make([]bool, d.vertices) // nothing of its phase waits for it
	for v := range d.vertices {
		last[v] = !d.isOtherPass(v)
		present[d.phaseOf(v)] = present[d.phaseOf(v)] || last[v]
	}
	for _, e := range d.edges {
		if d.phaseOf(e.from) == d.phaseOf(e.to) {
			last[e.from] = false
		}
	}
	before, vertices := phaseMain, d.vertices
	for p := phaseAPI; p < phaseCount; p++ {
		if !present[p] {
			continue
		}
		gate := d.addGate()
		d.plan.barriers = append(d.plan.barriers, phaseBarrier{gate, p})
		for v := range vertices {
			switch {
			case d.isOtherPass(v):
			case d.phaseOf(v) == p:
				d.addEdge(gate, v, need)
			case d.phaseOf(v) == before && last[v]:
				d.addEdge(v, gate, need)
			}
		}
		before = p
	}
}

// isOtherPass reports that v belongs to another pass.
func (d *graphDraft) isOtherPass(v int32) bool {
	return int(v) < len(d.plan.nodes) && d.plan.Class(v) != Other
}

// phaseBarrier is the gate that a phase waits for.
type phaseBarrier struct {
	gate  int32
	phase passPhase
}

// Barriers returns the gates behind which those objects are that come when everything else, node i
// included, has an outcome.
func (p *Plan) Barriers(i int32) []int32 {
	mine := (&graphDraft{plan: p}).phaseOf(i)
	var out []int32
	for _, b := range p.barriers {
		if b.phase > mine {
			out = append(out, b.gate)
		}
	}
	return out
}

// servedGroup returns the group that an APIService is for: its name is "<version>.<group>".
func servedGroup(name string) string {
	_, group, _ := strings.Cut(name, ".")
	return group
}
