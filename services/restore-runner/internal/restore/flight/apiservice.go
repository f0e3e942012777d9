package flight

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

var apiServiceResource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// APIServicesConfig is what APIServices are looked at with.
type APIServicesConfig struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	Client   *apply.Client
	Catalog  *object.Catalog
	Timeouts object.DelayTimeouts
}

// APIServices are the APIServices of a restore. Safe for concurrent use.
type APIServices struct {
	APIServicesConfig
	byKind map[*plan.Kind]*apiService
}

// apiService is an APIService of the restore that serves a kind of it.
type apiService struct {
	node      int32
	available atomic.Bool // and the catalog names the kind
}

// NewAPIServices finds the kinds that APIServices of the restore serve.
func NewAPIServices(cfg APIServicesConfig) *APIServices {
	s := &APIServices{APIServicesConfig: cfg, byKind: map[*plan.Kind]*apiService{}}
	kinds := cfg.Plan.Kinds()
	for i := range kinds {
		gvk := kinds[i].GVK
		node, ok := cfg.Plan.Find(apiServiceResource.GroupResource().String(), "", gvk.Version+"."+gvk.Group)
		if ok && cfg.Recorder.Concerns(node) {
			s.byKind[&kinds[i]] = &apiService{node: node}
		}
	}
	return s
}

// Unserved is a delay while the APIService that serves the kind of an object is not available; nil
// otherwise.
func (s *APIServices) Unserved(ctx context.Context, v int32) error {
	kind := s.Plan.Kind(v)
	by := s.byKind[kind]
	if by == nil || by.available.Load() {
		return nil
	}
	switch s.Recorder.Action(by.node) {
	case "", apply.Failed:
		return nil // it does not come, or comes only after the object
	}
	name := s.Plan.Name(by.node)
	why := s.checkServed(ctx, name, kind.GroupResource())
	if why == nil {
		by.available.Store(true)
		return nil
	}
	if object.IsEnding(ctx, why) {
		return why
	}
	timeout := s.Timeouts.Resource
	return &object.DelayError{Kind: object.Unserved, Key: "APIService " + name, Timeout: timeout, Waits: fmt.Sprintf("waits for APIService %q to serve it: %v", name, why),
		Err: fmt.Errorf("APIService %q does not serve it after %s: %w", name, timeout, why)}
}

// checkServed returns why an APIService does not serve a resource yet. The catalog names the resource
// afterwards.
func (s *APIServices) checkServed(ctx context.Context, name string, gr schema.GroupResource) error {
	raw, err := s.Client.Get(ctx, apply.Target{GVR: apiServiceResource, Name: name})
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
	return s.Catalog.Find(ctx, gr)
}
