package reset

import "strings"

// resetWebhooks makes webhooks of v1 acceptable: only None and NoneOnDryRun are legal side effects
// there, others come from objects that were stored under v1beta1.
func resetWebhooks(obj object, _ *Options) {
	if !strings.HasSuffix(text(obj, "apiVersion"), "/v1") {
		return
	}
	for _, hook := range objects(obj, "webhooks") {
		if s := text(hook, "sideEffects"); s != "None" && s != "NoneOnDryRun" {
			hook["sideEffects"] = "None"
		}
	}
}

// resetDefinition converts spec.preserveUnknownFields of v1beta1, which v1 refuses to create, to
// its form in v1.
func resetDefinition(obj object, _ *Options) {
	spec := child(obj, "spec")
	if keep, ok := spec["preserveUnknownFields"].(bool); !ok || !keep || !strings.HasSuffix(text(obj, "apiVersion"), "/v1") {
		return
	}
	drop(spec, "preserveUnknownFields")
	for _, version := range objects(spec, "versions") {
		if root := child(version, "schema", "openAPIV3Schema"); root != nil {
			root["x-kubernetes-preserve-unknown-fields"] = true
		}
	}
}
