package resource

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is one kind of object at the version the server prefers.
type Resource struct {
	// Kind is the group, version and kind of one object.
	Kind schema.GroupVersionKind
	// Name is the plural name, as in URLs.
	Name string
	// Singular and ShortNames are what people may type instead.
	Singular   string
	ShortNames []string
	Namespaced bool
	Verbs      []string
	// Aggregated is true for a group served by another API server behind the aggregation layer: its
	// resource versions are not comparable with others.
	Aggregated bool
	// Custom is true for a resource that a CustomResourceDefinition defines; it is named after the
	// resource. False where APIServices cannot be read.
	Custom bool
	// PlainStatus are the served versions without a status subresource: the status is a part of the object
	// as any other.
	PlainStatus []string
}

// GroupResource returns the name without the version.
func (r Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Kind.Group, Resource: r.Name}
}

// GVR returns group, version and plural name.
func (r Resource) GVR() schema.GroupVersionResource {
	return r.Kind.GroupVersion().WithResource(r.Name)
}

// String returns "deployments.apps", or "pods" for the core group.
func (r Resource) String() string { return r.GroupResource().String() }

// Backupable reports whether objects of the resource can be saved and brought back: the server can
// list, get, create and delete them.
func (r Resource) Backupable() bool {
	for _, verb := range []string{"list", "get", "create", "delete"} {
		if !slices.Contains(r.Verbs, verb) {
			return false
		}
	}
	return true
}

// GroupFailure is a group version whose resources could not be discovered.
type GroupFailure struct {
	GroupVersion schema.GroupVersion
	Err          error
}

// Catalog is what one discovery found. Immutable and safe for concurrent use.
type Catalog struct {
	resources []Resource
	failures  []GroupFailure
	byGR      map[schema.GroupResource]int
	byName    map[string][]int // plural, singular, short and kind names in lower case
}

// newCatalog indexes resources that are already in collection order.
func newCatalog(resources []Resource, failures []GroupFailure) *Catalog {
	c := &Catalog{resources: resources, failures: failures,
		byGR: make(map[schema.GroupResource]int, len(resources)), byName: map[string][]int{}}
	for i, r := range resources {
		c.byGR[r.GroupResource()] = i
		names := append([]string{r.Name, r.Singular, strings.ToLower(r.Kind.Kind)}, r.ShortNames...)
		slices.Sort(names)
		for _, n := range slices.Compact(names) {
			if n != "" {
				c.byName[n] = append(c.byName[n], i)
			}
		}
	}
	return c
}

// All returns every resource in collection order. The caller must not change it.
func (c *Catalog) All() []Resource { return c.resources }

// Failures returns the group versions that did not answer, sorted.
func (c *Catalog) Failures() []GroupFailure { return c.failures }

// SilentVersions are the group versions that could not be discovered.
func (c *Catalog) SilentVersions() (silent []schema.GroupVersion) {
	for _, f := range c.failures {
		silent = append(silent, f.GroupVersion)
	}
	return silent
}

// Backupable returns the resources a backup can collect that wanted selects (nil selects all), in
// collection order. Of a set of cohabiting kinds (the same objects under two groups) the first one
// selected is returned: a filter may name any of them.
func (c *Catalog) Backupable(wanted func(gr schema.GroupResource, namespaced bool) bool) []Resource {
	seen := map[string]schema.GroupResource{}
	var out []Resource
	for _, r := range c.resources {
		if !r.Backupable() || (wanted != nil && !wanted(r.GroupResource(), r.Namespaced)) {
			continue
		}
		if set := cohabitingSet(r.GroupResource()); set != "" {
			if _, dup := seen[set]; dup {
				continue
			}
			seen[set] = r.GroupResource()
		}
		out = append(out, r)
	}
	return out
}

// Lookup returns the resource of exactly that group and plural name.
func (c *Catalog) Lookup(gr schema.GroupResource) (Resource, bool) {
	i, ok := c.byGR[gr]
	if !ok {
		return Resource{}, false
	}
	return c.resources[i], true
}

// Resolve finds the resource a name means: a plural, singular, short or kind name, alone ("deploy")
// or with its group ("deploy.apps", "foos.v1.example.com"). A group may be cut short where that is
// unambiguous enough for the discovery order to decide ("ingress.networking"). Case does not
// matter.
func (c *Catalog) Resolve(name string) (gr schema.GroupResource, namespaced, ok bool) {
	name = strings.ToLower(name)
	plain, group, hasGroup := strings.Cut(name, ".")
	candidates := c.byName[plain]
	if !hasGroup {
		if len(candidates) == 0 {
			return schema.GroupResource{}, false, false
		}
		return c.foundResource(c.bestMatch(plain, candidates))
	}
	for _, match := range []func(Resource) bool{
		func(r Resource) bool { return r.Kind.Group == group },
		func(r Resource) bool { return r.Kind.Version+"."+r.Kind.Group == group },
		func(r Resource) bool { return strings.HasPrefix(r.Kind.Group, group) },
	} {
		for _, i := range candidates {
			if match(c.resources[i]) {
				return c.foundResource(i)
			}
		}
	}
	return schema.GroupResource{}, false, false
}

// bestMatch prefers a resource whose full name it is over a mere short name.
func (c *Catalog) bestMatch(name string, candidates []int) int {
	for _, i := range candidates {
		if r := c.resources[i]; r.Name == name || r.Singular == name {
			return i
		}
	}
	return candidates[0]
}

func (c *Catalog) foundResource(i int) (schema.GroupResource, bool, bool) {
	r := c.resources[i]
	return r.GroupResource(), r.Namespaced, true
}
