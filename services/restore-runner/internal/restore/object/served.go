package object

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/pkg/kube/resource"
)

// Catalog is what the cluster serves, as it was last discovered. Safe for concurrent use.
type Catalog struct {
	config *rest.Config
	last   atomic.Pointer[resource.Catalog]
	// assumed are resources that count as served: schema.GroupResource -> resource.Resource.
	assumed sync.Map
}

// NewCatalog returns a catalog of the cluster of config, which was discovered before.
func NewCatalog(config *rest.Config, discovered *resource.Catalog) *Catalog {
	c := &Catalog{config: config}
	c.last.Store(discovered)
	return c
}

// Lookup returns a resource; false when the cluster does not serve it.
func (c *Catalog) Lookup(gr schema.GroupResource) (resource.Resource, bool) {
	if found, ok := c.last.Load().Lookup(gr); ok {
		return found, true
	}
	assumed, ok := c.assumed.Load(gr)
	found, _ := assumed.(resource.Resource)
	return found, ok
}

// Assume has a resource count as served that the cluster does not have yet.
func (c *Catalog) Assume(r resource.Resource) { c.assumed.Store(r.GroupResource(), r) }

// HasPlainStatus reports that the status of a resource is a part of the object, which a creation keeps.
func (c *Catalog) HasPlainStatus(gvr schema.GroupVersionResource) bool {
	served, ok := c.Lookup(gvr.GroupResource())
	return ok && slices.Contains(served.PlainStatus, gvr.Version)
}

// Resolve returns the resource that any name of it means; false when the cluster has none of that
// name.
func (c *Catalog) Resolve(name string) (schema.GroupResource, bool) {
	gr, _, ok := c.last.Load().Resolve(name)
	return gr, ok
}

// OfKind returns the resource of a kind; false when the cluster does not serve it.
func (c *Catalog) OfKind(kind schema.GroupKind) (resource.Resource, bool) {
	gr, ok := c.Resolve(kind.Kind + "." + kind.Group)
	if !ok {
		return resource.Resource{}, false
	}
	found, ok := c.Lookup(gr)
	return found, ok && found.Kind.GroupKind() == kind
}

// Discover repeats the discovery.
func (c *Catalog) Discover(ctx context.Context) error {
	discovered, err := resource.Discover(ctx, c.config)
	if err != nil {
		return err
	}
	c.last.Store(discovered)
	return nil
}

// Find repeats the discovery unless the catalog has the resource. Afterwards it has it, or there is
// an error and the catalog is as before.
func (c *Catalog) Find(ctx context.Context, gr schema.GroupResource) error {
	if _, ok := c.Lookup(gr); ok {
		return nil
	}
	discovered, err := resource.Discover(ctx, c.config)
	if err != nil {
		return fmt.Errorf("discover: %w", err)
	}
	if _, ok := discovered.Lookup(gr); !ok {
		return fmt.Errorf("discovery does not name %s", gr)
	}
	c.last.Store(discovered)
	return nil
}
