package plan

import "github.com/holdfast-io/holdfast/pkg/spec/restoreorder"

// none is no vertex.
const none int32 = -1

// addStageGates makes a gate of each namespace: its Secrets, ConfigMaps, ServiceAccounts, Services and
// claims come before its Pods, workloads and custom resources, whose controllers would make them
// anew, and so does what guards its Pods. What is created paused waits for nothing: its controller does not act. Cluster-scoped
// custom resources wait for the gates of all namespaces: their controllers make objects in any of
// them.
func (d *graphDraft) addStageGates() {
	first := d.addFirstGate()
	gates := d.stageGates(first)
	wide := none
	for k := range d.plan.kinds {
		if !d.plan.kinds[k].role.actsOnObjects() || d.plan.kinds[k].paused {
			continue
		}
		for v := d.spans[k].from; v < d.spans[k].to; v++ {
			n := &d.plan.nodes[v]
			switch {
			case n.early:
			case n.namespace < 0:
				if wide == none {
					wide = d.addWideGate(append(gates, first))
				}
				d.addEdge(wide, v, fromStage)
			case gates[n.namespace] != none:
				d.addEdge(gates[n.namespace], v, fromStage)
			}
		}
	}
}

// stageGates returns the gate of each namespace that has one, behind the first gate.
func (d *graphDraft) stageGates(first int32) []int32 {
	gates := make([]int32, len(d.plan.namespaces))
	for i := range gates {
		gates[i] = none
		if first != none {
			gates[i] = d.addGate()
			d.addEdge(first, gates[i], need)
		}
	}
	for k := range d.plan.kinds {
		role := d.plan.kinds[k].role
		for v := d.spans[k].from; v < d.spans[k].to; v++ {
			n := &d.plan.nodes[v]
			if n.namespace < 0 || role != roleMaterial && role != roleGuard && !n.scoped {
				continue
			}
			if gates[n.namespace] == none {
				gates[n.namespace] = d.addGate()
			}
			d.addEdge(v, gates[n.namespace], toStage)
		}
	}
	return gates
}

// addFirstGate returns a gate that comes before those of all namespaces, none if there is nothing before
// it: behind what admission of Pods reads, and what guards Pods, in any namespace.
func (d *graphDraft) addFirstGate() int32 {
	gate := none
	for k := range d.plan.kinds {
		kind, bond := &d.plan.kinds[k], need
		switch {
		case kind.name == "priorityclasses.scheduling.k8s.io" || kind.name == "runtimeclasses.node.k8s.io":
		case kind.role == roleGuard:
			bond = toStage
		default:
			continue
		}
		for v := d.spans[k].from; v < d.spans[k].to; v++ {
			if d.plan.nodes[v].namespace >= 0 && (kind.GVK.Group != istioSecurity || d.plan.Target(v) != istioRoot) {
				continue
			}
			if gate == none {
				gate = d.addGate()
			}
			d.addEdge(v, gate, bond)
		}
	}
	return gate
}

// addWideGate returns a gate behind those of all namespaces.
func (d *graphDraft) addWideGate(gates []int32) int32 {
	wide := d.addGate()
	for _, g := range gates {
		if g != none {
			d.addEdge(g, wide, need)
		}
	}
	return wide
}

// Guards reports that Pods and workloads wait for object i, which guards them.
func (p *Plan) Guards(i int32) bool {
	return p.Kind(i).role == roleGuard && p.Kind(i).phase == phaseMain && p.order != restoreorder.Owners && p.order != restoreorder.Velero
}

// GuardsLate reports that object i guards Pods, and comes only after them: its API is served by an
// APIService of the restore.
func (p *Plan) GuardsLate(i int32) bool {
	return p.Kind(i).role == roleGuard && p.Kind(i).phase != phaseMain
}
