package apply

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FindSkip reports whether a stored object, before NormalizeObject, must not be restored at all.
func FindSkip(obj map[string]any, gr schema.GroupResource) *Skip {
	meta := childObject(obj, "metadata")
	switch gr.String() {
	case "pods":
		return skippedPod(obj, meta)
	case "jobs.batch":
		if childObject(obj, "status")["completionTime"] != nil {
			return &Skip{Reason: "the job has completed"}
		}
	case "apiservices.apiregistration.k8s.io":
		if _, ok := childObject(meta, "labels")["kube-aggregator.kubernetes.io/automanaged"]; ok {
			return &Skip{Reason: "the API server manages it by itself"}
		}
	case "ipaddresses.networking.k8s.io":
		if textOf(childObject(meta, "labels"), "ipaddress.kubernetes.io/managed-by") == "ipallocator.k8s.io" {
			return &Skip{Reason: "the API server allocates it for a Service"}
		}
	case "endpointslices.discovery.k8s.io":
		if textOf(childObject(meta, "labels"), "endpointslice.kubernetes.io/managed-by") == "endpointslice-controller.k8s.io" {
			return &Skip{Reason: "its controller makes it anew from the Service, with the addresses of today"}
		}
	case "datauploads.velero.io":
		return &Skip{Reason: "moved volume snapshots are not restored by this version", Report: true}
	}
	return nil
}

func skippedPod(obj, meta object) *Skip {
	if _, ok := childObject(meta, "annotations")["kubernetes.io/config.mirror"]; ok {
		return &Skip{Reason: "a mirror of a static pod"}
	}
	switch phase := textOf(childObject(obj, "status"), "phase"); phase {
	case "Succeeded", "Failed":
		return &Skip{Reason: "the pod has ended: " + phase}
	}
	return nil
}

// FindUnsupported returns the annotation of a stored object that requests something this version does
// not do, "" when there is none. Its caller reports it: otherwise the results would be wrong about
// what was restored.
func FindUnsupported(obj map[string]any) string {
	if textOf(childObject(obj, "metadata", "annotations"), "velero.io/restore-status") == "true" {
		return "velero.io/restore-status"
	}
	return ""
}
