package apply

import (
	"strings"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// resetWebhooks makes webhooks of v1 acceptable: only None and NoneOnDryRun are legal side effects
// there, others come from objects that were stored under v1beta1.
func resetWebhooks(obj object, _ *ResetOptions) {
	if !strings.HasSuffix(textOf(obj, "apiVersion"), "/v1") {
		return
	}
	for _, hook := range objectList(obj, "webhooks") {
		if s := textOf(hook, "sideEffects"); s != "None" && s != "NoneOnDryRun" {
			hook["sideEffects"] = "None"
		}
	}
}

// resetDefinition converts spec.preserveUnknownFields of v1beta1, which v1 refuses to create, to
// its form in v1.
func resetDefinition(obj object, _ *ResetOptions) {
	spec := childObject(obj, "spec")
	if keep, ok := spec["preserveUnknownFields"].(bool); !ok || !keep || !strings.HasSuffix(textOf(obj, "apiVersion"), "/v1") {
		return
	}
	dropKeys(spec, "preserveUnknownFields")
	for _, version := range objectList(spec, "versions") {
		if root := childObject(version, "schema", "openAPIV3Schema"); root != nil {
			root["x-kubernetes-preserve-unknown-fields"] = true
		}
	}
}

// resetSchedule drops what queue-scheduler notes of the slots that it deals with.
func resetSchedule(obj object, _ *ResetOptions) {
	dropKeys(childObject(obj, "metadata", "annotations"), holdfast.AnnotationPendingSlot, holdfast.AnnotationActiveSchedule)
}

// resetLocation keeps the default of the cluster: a restored location does not take it, and one that is there
// keeps it.
func resetLocation(obj object, _ *ResetOptions) {
	dropKeys(childObject(obj, "spec"), "default")
	dropKeys(childObject(obj, "metadata", "annotations"), holdfast.AnnotationDefault, holdfast.AnnotationWithdrawn)
}
