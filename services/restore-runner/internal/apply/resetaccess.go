package apply

import "strings"

const (
	tokenSecret     = "kubernetes.io/service-account-token"
	accountUIDAnnot = "kubernetes.io/service-account.uid"
)

// resetServiceAccount drops references to generated token Secrets: the new account gets its own.
func resetServiceAccount(obj object, _ *ResetOptions) {
	prefix := textOf(childObject(obj, "metadata"), "name") + "-token-"
	filterList(obj, "secrets", func(ref object) bool { return !strings.HasPrefix(textOf(ref, "name"), prefix) })
}

// resetSecret makes a ServiceAccount token Secret one that the token controller fills for the new
// account.
func resetSecret(obj object, _ *ResetOptions) {
	if textOf(obj, "type") != tokenSecret {
		return
	}
	dropKeys(childObject(obj, "metadata", "annotations"), accountUIDAnnot)
	dropKeys(childObject(obj, "data"), "token", "ca.crt", "namespace")
}

// resetBinding follows the namespace mapping in the subjects of role bindings.
func resetBinding(obj object, o *ResetOptions) {
	if o.MapNamespace == nil {
		return
	}
	for _, subject := range objectList(obj, "subjects") {
		if ns := textOf(subject, "namespace"); ns != "" {
			subject["namespace"] = o.MapNamespace(ns)
		}
	}
}
