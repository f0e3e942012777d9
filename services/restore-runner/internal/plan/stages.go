package plan

// none is no vertex.
const none int32 = -1

// stages makes a gate of each namespace: its Secrets, ConfigMaps, ServiceAccounts, Services and
// claims come before its Pods, workloads and custom resources, whose controllers would make them
// anew. What is created paused waits for nothing: its controller does not act. Cluster-scoped
// custom resources wait for the gates of all namespaces: their controllers make objects in any of
// them.
func (d *draft) stages() {
	gates := d.stageGates()
	wide := none
	for k := range d.plan.kinds {
		if !d.plan.kinds[k].role.acts() || d.plan.kinds[k].paused {
			continue
		}
		for v := d.spans[k].from; v < d.spans[k].to; v++ {
			n := &d.plan.nodes[v]
			switch {
			case n.early:
			case n.namespace < 0:
				if wide == none {
					wide = d.wide(gates)
				}
				d.add(wide, v, fromStage)
			case gates[n.namespace] != none:
				d.add(gates[n.namespace], v, fromStage)
			}
		}
	}
}

// stageGates returns the gate of each namespace that has one. What admission of Pods reads, in any
// namespace, comes before all of them.
func (d *draft) stageGates() []int32 {
	gates := make([]int32, len(d.plan.namespaces))
	classes := d.classes("priorityclasses.scheduling.k8s.io", "runtimeclasses.node.k8s.io")
	for i := range gates {
		gates[i] = none
		if classes != none {
			gates[i] = d.gate()
			d.add(classes, gates[i], need)
		}
	}
	for k := range d.plan.kinds {
		for v := d.spans[k].from; v < d.spans[k].to; v++ {
			n := &d.plan.nodes[v]
			if n.namespace < 0 || d.plan.kinds[k].role != roleMaterial && !n.scoped {
				continue
			}
			if gates[n.namespace] == none {
				gates[n.namespace] = d.gate()
			}
			d.add(v, gates[n.namespace], toStage)
		}
	}
	return gates
}

// classes returns a gate behind all objects of cluster-scoped kinds, none if there are no such
// objects.
func (d *draft) classes(names ...string) int32 {
	gate := none
	for _, name := range names {
		for s, v := d.of(name), d.of(name).from; v < s.to; v++ {
			if gate == none {
				gate = d.gate()
			}
			d.add(v, gate, need)
		}
	}
	return gate
}

// wide returns a gate behind those of all namespaces.
func (d *draft) wide(gates []int32) int32 {
	wide := d.gate()
	for _, g := range gates {
		if g != none {
			d.add(g, wide, need)
		}
	}
	return wide
}
