package restore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/delay"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/stop"
)

var apiServicesGVR = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// aggregated is an APIService of the restore that serves a kind of it.
type aggregated struct {
	node      int32
	available atomic.Bool // and the catalog names the kind
}

// aggregate finds the kinds that APIServices of the restore serve. Such an APIService answers once
// what is behind it runs, which the restore has created just before.
func (r *run) aggregate() {
	r.aggregates = map[*plan.Kind]*aggregated{}
	kinds := r.Plan.Kinds()
	for i := range kinds {
		gvk := kinds[i].GVK
		node, ok := r.Plan.Find(apiServicesGVR.GroupResource().String(), "", gvk.Version+"."+gvk.Group)
		if ok && r.Recorder.Concerns(node) {
			r.aggregates[&kinds[i]] = &aggregated{node: node}
		}
	}
}

// unserved is a delay while the APIService that serves the kind of an object is not available; nil
// otherwise.
func (r *run) unserved(ctx context.Context, v int32) error {
	kind := r.Plan.Kind(v)
	a := r.aggregates[kind]
	if a == nil || a.available.Load() {
		return nil
	}
	switch r.Recorder.Action(a.node) {
	case "", apply.Failed:
		return nil // it does not come, or comes only after the object
	}
	name := r.Plan.Node(a.node).Name
	why := r.answers(ctx, name, kind.GroupResource())
	if why == nil {
		a.available.Store(true)
		return nil
	}
	if stop.Ending(ctx, why) {
		return why
	}
	return &delay.Error{Kind: delay.Unserved, Key: "APIService " + name, Timeout: r.ResourceTimeout,
		Err: fmt.Errorf("APIService %q does not serve it after %s: %w", name, r.ResourceTimeout, why)}
}

// answers returns why an APIService does not serve a resource yet. The catalog names the resource
// afterwards.
func (r *run) answers(ctx context.Context, name string, gr schema.GroupResource) error {
	raw, err := r.client.Get(ctx, apply.Target{GVR: apiServicesGVR, Name: name})
	if err != nil {
		return fmt.Errorf("look for it: %w", err)
	}
	var live struct {
		Spec struct {
			Service *struct{} `json:"service"`
		} `json:"spec"`
		Status struct {
			Conditions []struct{ Type, Status, Message string } `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &live); err != nil {
		return fmt.Errorf("decode it: %w", err)
	}
	if live.Spec.Service == nil {
		return nil // the API server itself serves the group
	}
	why := "it has no condition Available yet"
	for _, c := range live.Status.Conditions {
		if c.Type != "Available" {
			continue
		}
		if why = ""; c.Status != "True" {
			why = cmp.Or(c.Message, "it is not available")
		}
	}
	if why != "" {
		return errors.New(why)
	}
	return r.rediscover(ctx, gr)
}

// rediscover asks the cluster again what it serves, for a resource.
func (r *run) rediscover(ctx context.Context, gr schema.GroupResource) error {
	if _, ok := r.catalog.Load().Lookup(gr); ok {
		return nil
	}
	catalog, err := resource.Discover(ctx, r.REST)
	if err != nil {
		return fmt.Errorf("discover: %w", err)
	}
	if _, ok := catalog.Lookup(gr); !ok {
		return fmt.Errorf("discovery does not name %s", gr)
	}
	r.catalog.Store(catalog)
	return nil
}
