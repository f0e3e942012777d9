package plan

// orderRule makes all objects of one resource wait for all objects of another, of the same namespace
// unless the latter is cluster-scoped: creating them earlier fails or has other effects.
type orderRule struct{ before, after string }

var rules = []orderRule{
	{"serviceaccounts", "secrets"}, // a token Secret without its account is deleted
	{"services", "endpoints"},      // Endpoints without their Service are deleted
	{"storageclasses.storage.k8s.io", "persistentvolumeclaims"},
	{"storageclasses.storage.k8s.io", "persistentvolumes"},
	{"ingressclasses.networking.k8s.io", "ingresses.networking.k8s.io"},
	{"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io"},
	{"clusterroles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"},
	{"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"},
	// A limit refuses, or changes, Pods and claims that were there before it; what workloads make
	// from then on meets it.
	{"pods", "limitranges"},
	{"persistentvolumeclaims", "limitranges"},
	{"limitranges", "replicationcontrollers"},
	{"limitranges", "deployments.apps"},
	{"limitranges", "replicasets.apps"},
	{"limitranges", "statefulsets.apps"},
	{"limitranges", "daemonsets.apps"},
	{"limitranges", "jobs.batch"},
	{"limitranges", "cronjobs.batch"},
}

// addRuleGates adds a gate for each rule and namespace that has objects on both sides.
func (d *graphDraft) addRuleGates() {
	for _, rule := range rules {
		before, after := d.nodesOf(rule.before), d.nodesOf(rule.after)
		gateOf := d.gatesBehind(before, after)
		for v := after.from; v < after.to; v++ {
			if gate, ok := gateOf[d.plan.nodes[v].namespace]; ok {
				d.addEdge(gate, v, need)
			}
			if gate, ok := gateOf[none]; ok && d.plan.nodes[v].namespace != none {
				d.addEdge(gate, v, need)
			}
		}
	}
}

// gatesBehind returns a gate for each namespace, or none, that has nodes of both spans, behind
// those of the first.
func (d *graphDraft) gatesBehind(before, after nodeSpan) map[int32]int32 {
	wanted, gateOf := map[int32]bool{}, map[int32]int32{}
	for v := after.from; v < after.to; v++ {
		wanted[d.plan.nodes[v].namespace], wanted[none] = true, true
	}
	for v := before.from; v < before.to; v++ {
		namespace := d.plan.nodes[v].namespace
		if !wanted[namespace] {
			continue
		}
		gate, ok := gateOf[namespace]
		if !ok {
			gate = d.addGate()
			gateOf[namespace] = gate
		}
		d.addEdge(v, gate, need)
	}
	return gateOf
}
