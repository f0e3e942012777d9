package flight

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

var (
	servicesGVR  = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	endpointsGVR = schema.GroupVersionResource{Version: "v1", Resource: "endpoints"}
)

// skipManaged keeps Endpoints out that a controller makes from a Service and its Pods, and EndpointSlices
// that it makes from Endpoints.
func (s *Screen) skipManaged(ctx context.Context, o *object.Object, kind *plan.Kind) *apply.Skip {
	switch kind.String() {
	case "endpoints":
		if s.hasSelector(ctx, o) {
			return &apply.Skip{Reason: "its controller makes it anew from the Service, with the addresses of today"}
		}
	case "endpointslices.discovery.k8s.io":
		name, mirrored := apply.MirroredEndpoints(o.Body)
		if mirrored && s.existsBeside(ctx, o, endpointsGVR, name) {
			return &apply.Skip{Reason: fmt.Sprintf("its controller makes it anew from Endpoints %q", name)}
		}
	}
	return nil
}

// hasSelector reports that the Service of Endpoints, as it is stored or else in the cluster, selects Pods.
func (s *Screen) hasSelector(ctx context.Context, o *object.Object) bool {
	var service map[string]any
	if node, ok := s.findSelected(o, servicesGVR, o.Target.Name); ok {
		if stored, err := s.Loader.Load(ctx, node); err == nil {
			service = stored.Body
		}
	} else {
		service = s.liveBeside(ctx, o, servicesGVR, o.Target.Name)
	}
	return len(object.MapAt(object.MapAt(service, "spec"), "selector")) > 0
}

// existsBeside reports that an object beside o is part of the restore, or in the cluster.
func (s *Screen) existsBeside(ctx context.Context, o *object.Object, gvr schema.GroupVersionResource, name string) bool {
	_, ok := s.findSelected(o, gvr, name)
	return ok || s.liveBeside(ctx, o, gvr, name) != nil
}

// findSelected finds an object of the namespace of o that is part of the restore.
func (s *Screen) findSelected(o *object.Object, gvr schema.GroupVersionResource, name string) (int32, bool) {
	node, ok := s.Plan.Find(gvr.Resource, s.Plan.Source(o.Node), name)
	return node, ok && s.Owners.Recorder.Concerns(node)
}

// liveBeside reads an object of the namespace of o; nil where it is not there, or cannot be read.
func (s *Screen) liveBeside(ctx context.Context, o *object.Object, gvr schema.GroupVersionResource, name string) map[string]any {
	if s.Owners.Namespaces.Created(o.Target.Namespace) {
		return nil
	}
	live, err := s.Owners.Existing.Get(ctx, apply.Target{GVR: gvr, Namespace: o.Target.Namespace, Name: name})
	if err != nil {
		return nil
	}
	return live
}
