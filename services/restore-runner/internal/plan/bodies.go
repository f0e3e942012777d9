package plan

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// takeBody keeps what decides about the place of an object and is in its body alone. An object that cannot be
// read has the place of its kind: restoring it reports the reason.
func (b *planBuilder) takeBody(item *manifest.Item, gr schema.GroupResource) (bounds bool) {
	kind := gr.String()
	if b.config.Read == nil || kind != quotasResource && (kind != servicesResource || b.config.Ports == nil) {
		return false
	}
	raw, err := b.config.Read(*item)
	if err != nil {
		return false
	}
	if kind == quotasResource {
		return boundsPods(raw)
	}
	if kept, chosen := b.config.Ports(raw); kept || chosen {
		b.hints.ports[clonePlace(item.Namespace, item.Name)] = kept
	}
	return false
}

// bounded are the names of a quota's limits that count Pods, or what is there before workloads are: with others, a
// quota that was lowered would refuse objects that the backup holds.
var bounded = map[string]bool{
	"pods": true, "cpu": true, "memory": true, "ephemeral-storage": true,
	"persistentvolumeclaims": false, "services": false, "secrets": false, "configmaps": false, "services.nodeports": false, "services.loadbalancers": false,
}

// boundsPods reports that a quota limits Pods, or their resources, and nothing that comes after workloads.
func boundsPods(raw []byte) (pods bool) {
	var quota struct {
		Spec struct {
			Hard map[string]any `json:"hard"`
		} `json:"spec"`
	}
	if jsonlimit.Unmarshal(raw, &quota, jsonlimit.Object) != nil {
		return false
	}
	for name := range quota.Spec.Hard {
		_, storage, ofClass := strings.Cut(name, ".storageclass.storage.k8s.io/")
		if ofClass {
			name = storage
		}
		counted, known := bounded[strings.TrimPrefix(name, "count/")]
		resource := strings.HasPrefix(name, "requests.") || strings.HasPrefix(name, "limits.")
		if !known && !resource {
			return false
		}
		pods = pods || counted || resource && !strings.HasSuffix(name, "requests.storage")
	}
	return pods
}

// addQuotaGates makes a quota that bounds Pods wait for the Pods of its namespace, and for what the namespace
// has before its workloads; these wait for the quota: their controllers would make more Pods than it allows.
func (d *graphDraft) addQuotaGates() {
	before, after := map[int32]int32{}, map[int32]int32{} // namespace -> gate
	quotas := d.nodesOf(quotasResource)
	for v := quotas.from; v < quotas.to; v++ {
		n := &d.plan.nodes[v]
		if !n.bounds {
			continue
		}
		if _, ok := before[n.namespace]; !ok {
			before[n.namespace], after[n.namespace] = d.addGate(), d.addGate()
		}
		d.addEdge(before[n.namespace], v, fromStage)
		d.addEdge(v, after[n.namespace], toStage)
	}
	for k := range d.plan.kinds {
		role := d.plan.kinds[k].role
		if len(before) == 0 || role != rolePod && role != roleMaterial && role != roleWorkload {
			continue
		}
		for v := d.spans[k].from; v < d.spans[k].to; v++ {
			namespace := d.plan.nodes[v].namespace
			switch gate, ok := before[namespace]; {
			case !ok:
			case role == roleWorkload:
				d.addEdge(after[namespace], v, fromStage)
			default:
				d.addEdge(v, gate, toStage)
			}
		}
	}
}

// Bounds reports that workloads wait for object i, a quota: it has to be in force before them.
func (p *Plan) Bounds(i int32) bool { return p.nodes[i].bounds }

// addPortEdges makes Services whose node ports the API server chooses wait for those that keep a port, which
// it could choose.
func (d *graphDraft) addPortEdges() {
	services, gate := d.nodesOf(servicesResource), none
	eachPort := func(wanted bool, do func(v int32)) {
		for v := services.from; v < services.to && len(d.hints.ports) > 1; v++ {
			if kept, ok := d.hints.ports[objectPlace{d.plan.Source(v), d.plan.Name(v)}]; ok && kept == wanted {
				do(v)
			}
		}
	}
	eachPort(true, func(v int32) {
		if gate == none {
			gate = d.addGate()
		}
		d.addEdge(v, gate, toPort)
	})
	if gate != none {
		eachPort(false, func(v int32) { d.addEdge(gate, v, toPort) })
	}
}
