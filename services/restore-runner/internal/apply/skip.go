package apply

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FindSkip reports whether a stored object, before NormalizeObject, must not be restored at all.
func FindSkip(obj map[string]any, gr schema.GroupResource) *Skip {
	meta := childObject(obj, "metadata")
	switch gr.String() {
	case "pods":
		return skippedPod(obj, meta)
	case "jobs.batch":
		if end := jobEnd(obj); end != "" {
			return &Skip{Reason: end, Ended: true}
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
		if textOf(childObject(meta, "labels"), managedBySlice) == "endpointslice-controller.k8s.io" {
			return &Skip{Reason: "its controller makes it anew from the Service, with the addresses of today"}
		}
	case "deletebackuprequests.velero.io":
		return &Skip{Reason: "without its status it would delete the backup again"}
	case "datauploads.velero.io", "datadownloads.velero.io":
		return &Skip{Reason: "without its status it would be served again"}
	}
	return nil
}

func skippedPod(obj, meta object) *Skip {
	if _, ok := childObject(meta, "annotations")["kubernetes.io/config.mirror"]; ok {
		return &Skip{Reason: "a mirror of a static pod"}
	}
	switch phase := textOf(childObject(obj, "status"), "phase"); {
	case phase == "Succeeded", phase == "Failed":
		return &Skip{Reason: "the pod has ended: " + phase}
	case meta["deletionTimestamp"] != nil:
		return &Skip{Reason: "the pod was being deleted"}
	case podRanToEnd(obj):
		return &Skip{Reason: "the pod has ended: all its containers have terminated"}
	}
	return nil
}

// podRanToEnd reports that no container of a pod runs any more, and none is started again: the phase
// follows later.
func podRanToEnd(obj object) bool {
	policy := textOf(childObject(obj, "spec"), "restartPolicy")
	statuses := objectList(childObject(obj, "status"), "containerStatuses")
	for _, status := range statuses {
		end := childObject(status, "state", "terminated")
		if end == nil || policy == "OnFailure" && numberOf(end["exitCode"]) != 0 {
			return false
		}
	}
	return len(statuses) > 0 && (policy == "Never" || policy == "OnFailure")
}

// jobEnd returns how a job ended, "" when it did not. The conditions of an end that is certain come
// before those of the end itself, while the last pods terminate.
func jobEnd(obj object) string {
	status := childObject(obj, "status")
	for _, condition := range objectList(status, "conditions") {
		if condition["status"] != "True" {
			continue
		}
		switch condition["type"] {
		case "Failed", "FailureTarget":
			return "the job has failed: " + textOf(condition, "reason")
		case "Complete", "SuccessCriteriaMet":
			return "the job has completed"
		}
	}
	if status["completionTime"] != nil {
		return "the job has completed"
	}
	return ""
}

// IsRunningJob reports that a stored Job, which did not end, had begun and was not suspended.
func IsRunningJob(job map[string]any) bool {
	return childObject(job, "status")["startTime"] != nil && childObject(job, "spec")["suspend"] != true
}

// FindUnsupported returns the annotation of a stored object that requests something this version does
// not do, "" when there is none. Its caller reports it: otherwise the results would be wrong about
// what was restored.
func FindUnsupported(obj map[string]any) string {
	if strings.EqualFold(textOf(childObject(obj, "metadata", "annotations"), "velero.io/restore-status"), "true") {
		return "velero.io/restore-status"
	}
	return ""
}
