package resource

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// cohabitingSet names the set of resources that show the same stored objects, "" for a resource that
// stands alone.
func cohabitingSet(gr schema.GroupResource) string {
	var groups []string
	switch gr.Resource {
	case "deployments", "daemonsets", "replicasets":
		groups = []string{"extensions", "apps"}
	case "networkpolicies":
		groups = []string{"extensions", "networking.k8s.io"}
	case "events":
		groups = []string{"", "events.k8s.io"}
	}
	if slices.Contains(groups, gr.Group) {
		return gr.Resource
	}
	return ""
}

// coreFirst ranks the core kinds that come before the rest of their group.
var coreFirst = map[string]int{"pods": 0, "persistentvolumeclaims": 1, "persistentvolumes": 2}

// resourceRank orders the resources of one group; equal ranks keep discovery order.
func resourceRank(r Resource) int {
	if r.Kind.Group == "" {
		if n, ok := coreFirst[r.Name]; ok {
			return n
		}
	}
	return len(coreFirst)
}

// orderResources puts resources, given in discovery order, into collection order: groups as discovered with
// extensions last, and inside the core group pods, claims and volumes first.
func orderResources(in []Resource) {
	groups := map[string]int{}
	for _, r := range in {
		if _, ok := groups[r.Kind.Group]; !ok {
			groups[r.Kind.Group] = len(groups)
		}
	}
	position := func(r Resource) int {
		if r.Kind.Group == "extensions" {
			return len(groups)
		}
		return groups[r.Kind.Group]
	}
	slices.SortStableFunc(in, func(a, b Resource) int {
		if d := position(a) - position(b); d != 0 {
			return d
		}
		return resourceRank(a) - resourceRank(b)
	})
}
