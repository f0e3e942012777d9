package plan

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
)

// objectPlace names an object of a known kind in the backup.
type objectPlace struct{ namespace, name string }

// edgeHints is the order that the references of single objects require, besides owners. It is needed
// only while a plan is built.
type edgeHints struct {
	volumes    map[objectPlace]string      // claims that name a volume which is not bound to them
	sources    map[objectPlace]claimOrigin // claims -> what they are filled from
	converters map[string][]string         // resources -> namespaces of the Services that convert their objects
	served     map[string]bool             // groups of APIServices
	ports      map[objectPlace]bool        // Services with node ports -> whether one of these is kept

	named   []schema.GroupKind         // kinds of what objects name
	numbers map[schema.GroupKind]int32 // and back
	names   arena                      // of what nodes name
	at      []position                 // in names
	taken   int                        // bytes of these
	dropped int                        // names that exceed the bound
}

// claimOrigin is what a claim is filled from.
type claimOrigin struct {
	kind schema.GroupKind
	at   objectPlace
}

func newHints() *edgeHints {
	return &edgeHints{volumes: map[objectPlace]string{}, sources: map[objectPlace]claimOrigin{}, converters: map[string][]string{}, served: map[string]bool{}, ports: map[objectPlace]bool{}, numbers: map[schema.GroupKind]int32{}}
}

// automanaged marks APIServices that the API server makes by itself, of built-in groups and of
// definitions.
const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// takeReferences keeps the references of an item.
func (h *edgeHints) takeReferences(item *manifest.Item, gr schema.GroupResource, bound func(volume string) (namespace, name string)) {
	switch gr.String() {
	case claimsResource:
		h.takeClaim(item, bound)
	case definitionsResource:
		for i := range item.References {
			if item.References[i].Relation == reference.Calls {
				name := strings.Clone(item.Name)
				h.converters[name] = append(h.converters[name], strings.Clone(item.References[i].Namespace))
			}
		}
	case "apiservices.apiregistration.k8s.io":
		group := servedGroup(item.Name)
		_, own := item.Labels[automanaged]
		if _, builtIn := groups[group]; !own && !builtIn {
			h.served[strings.Clone(group)] = true
		}
	}
}

func (h *edgeHints) takeClaim(item *manifest.Item, bound func(volume string) (namespace, name string)) {
	at := clonePlace(item.Namespace, item.Name)
	for i := range item.References {
		switch r := &item.References[i]; r.Relation {
		case reference.Binds:
			if bound != nil {
				if namespace, name := bound(r.Name); at == (objectPlace{namespace, name}) {
					continue
				}
			}
			h.volumes[at] = strings.Clone(r.Name)
		case reference.FilledFrom:
			h.sources[at] = claimOrigin{schema.GroupKind{Group: strings.Clone(r.Group), Kind: strings.Clone(r.Kind)}, clonePlace(r.Namespace, r.Name)}
		}
	}
}

func clonePlace(namespace, name string) objectPlace {
	return objectPlace{strings.Clone(namespace), strings.Clone(name)}
}

// isScopedQuota reports that an item is a quota of certain priority classes: the API server may refuse
// Pods of these classes where there is no such quota.
func isScopedQuota(item *manifest.Item) bool {
	for i := range item.References {
		if item.References[i].Relation == reference.LimitedTo {
			return item.Kind == "ResourceQuota" && item.Group == ""
		}
	}
	return false
}

// addVolumeEdges makes each claim wait for its own volume: the one that is bound to it, and the one that
// it names.
func (d *graphDraft) addVolumeEdges() {
	for v := d.nodesOf(volumesResource).from; v < d.nodesOf(volumesResource).to; v++ {
		if d.plan.claim == nil {
			break
		}
		namespace, name := d.plan.claim(d.plan.Name(v))
		if c, ok := d.plan.Find(claimsResource, namespace, name); ok {
			d.addEdge(v, c, need)
		}
	}
	for c := d.nodesOf(claimsResource).from; c < d.nodesOf(claimsResource).to; c++ {
		if v, ok := d.plan.Find(volumesResource, "", d.hints.volumes[objectPlace{d.plan.Source(c), d.plan.Name(c)}]); ok {
			d.addEdge(v, c, need)
		}
	}
}

// addSourceEdges makes claims wait for what they are filled from, which then waits for no stage. What a
// claim of another namespace names keeps its place: its own namespace has not agreed to that.
func (d *graphDraft) addSourceEdges() {
	for c := d.nodesOf(claimsResource).from; c < d.nodesOf(claimsResource).to; c++ {
		r, ok := d.hints.sources[objectPlace{d.plan.Source(c), d.plan.Name(c)}]
		if !ok {
			continue
		}
		for k := range d.plan.kinds {
			kind := &d.plan.kinds[k]
			if kind.GVK.GroupKind() != r.kind {
				continue
			}
			if v, ok := d.plan.Find(kind.name, r.at.namespace, r.at.name); ok && v != c {
				d.plan.nodes[v].early = d.plan.nodes[v].early || r.at.namespace == d.plan.Source(c)
				d.addEdge(v, c, need)
			}
		}
	}
}

// addConversionEdges makes custom resources wait for the workloads beside the Service that converts them.
func (d *graphDraft) addConversionEdges() {
	gates := map[string]int32{} // of namespaces
	for k := range d.plan.kinds {
		for _, namespace := range d.hints.converters[d.plan.kinds[k].name] {
			gate, ok := gates[namespace]
			if !ok {
				gate = d.behindWorkloads(namespace)
				gates[namespace] = gate
			}
			for v := d.spans[k].from; v < d.spans[k].to; v++ {
				d.addEdge(gate, v, fromStage)
			}
		}
	}
}

// behindWorkloads returns a gate behind the Pods and workloads of a namespace.
func (d *graphDraft) behindWorkloads(namespace string) int32 {
	gate := d.addGate()
	for k := range d.plan.kinds {
		if r := d.plan.kinds[k].role; r != rolePod && r != roleWorkload {
			continue
		}
		for v := d.spans[k].from; v < d.spans[k].to; v++ {
			if d.plan.Source(v) == namespace {
				d.addEdge(v, gate, need)
			}
		}
	}
	return gate
}
