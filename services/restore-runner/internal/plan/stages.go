package plan

// none is no vertex.
const none int32 = -1

// addStageGates makes a gate of each namespace: its Secrets, ConfigMaps, ServiceAccounts, Services and
// claims come before its Pods, workloads and custom resources, whose controllers would make them
// anew. What is created paused waits for nothing: its controller does not act. Cluster-scoped
// custom resources wait for the gates of all namespaces: their controllers make objects in any of
// them.
func (d *graphDraft) addStageGates() {
	gates := d.stageGates()
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
					wide = d.addWideGate(gates)
				}
				d.addEdge(wide, v, fromStage)
			case gates[n.namespace] != none:
				d.addEdge(gates[n.namespace], v, fromStage)
			}
		}
	}
}

// stageGates returns the gate of each namespace that has one. What admission of Pods reads, in any
// namespace, comes before all of them.
func (d *graphDraft) stageGates() []int32 {
	gates := make([]int32, len(d.plan.namespaces))
	classes := d.addClassGate("priorityclasses.scheduling.k8s.io", "runtimeclasses.node.k8s.io")
	for i := range gates {
		gates[i] = none
		if classes != none {
			gates[i] = d.addGate()
			d.addEdge(classes, gates[i], need)
		}
	}
	for k := range d.plan.kinds {
		for v := d.spans[k].from; v < d.spans[k].to; v++ {
			n := &d.plan.nodes[v]
			if n.namespace < 0 || d.plan.kinds[k].role != roleMaterial && !n.scoped {
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

// addClassGate returns a gate behind all objects of cluster-scoped kinds, none if there are no such
// objects.
func (d *graphDraft) addClassGate(names ...string) int32 {
	gate := none
	for _, name := range names {
		for s, v := d.nodesOf(name), d.nodesOf(name).from; v < s.to; v++ {
			if gate == none {
				gate = d.addGate()
			}
			d.addEdge(v, gate, need)
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
