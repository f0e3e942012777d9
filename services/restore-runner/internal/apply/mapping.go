package apply

import (
	"slices"
	"strings"
)

// Resources whose objects name namespaces of accounts or of Services.
const (
	roleBindings        = "rolebindings.rbac.authorization.k8s.io"
	clusterRoleBindings = "clusterrolebindings.rbac.authorization.k8s.io"
	securityConstraints = "securitycontextconstraints.security.openshift.io"
	flowSchemas         = "flowschemas.flowcontrol.apiserver.k8s.io"
	apiServices         = "apiservices.apiregistration.k8s.io"
	definitions         = "customresourcedefinitions.apiextensions.k8s.io"
	mutatingWebhooks    = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	validatingWebhooks  = "validatingwebhookconfigurations.admissionregistration.k8s.io"
)

// accountLists are the lists in which objects grant something to accounts: to subjects, or to users and
// groups by their names.
var accountLists = map[string][]string{
	roleBindings: {"subjects"}, clusterRoleBindings: {"subjects"}, securityConstraints: {"users", "groups"},
}

// accountPrefixes begin the names of the users and groups that ServiceAccounts are. The namespace follows.
var accountPrefixes = [...]string{"system:serviceaccount:", "system:serviceaccounts:"}

// mapReferences follows the namespace mapping in an object of a resource that names accounts, or Services
// that the API server calls.
func mapReferences(obj object, resource string, o *ResetOptions) {
	if o.MapNamespace == nil {
		return
	}
	for _, key := range accountLists[resource] {
		if list, ok := obj[key].([]any); ok {
			mapAccounts(list, o.MapNamespace)
		}
	}
	for _, service := range calledServices(obj, resource) {
		if namespace := textOf(service, "namespace"); namespace != "" {
			service["namespace"] = o.MapNamespace(namespace)
		}
	}
	if resource == flowSchemas {
		mapFlowSchema(obj, o.MapNamespace)
	}
}

// mapAccounts follows the mapping in a list of accounts.
func mapAccounts(list []any, mapped func(string) string) {
	for i, entry := range list {
		switch entry := entry.(type) {
		case string:
			list[i] = mapPrincipal(entry, mapped)
		case object:
			mapSubject(entry, mapped)
		}
	}
}

// mapSubject follows the mapping in a subject.
func mapSubject(subject object, mapped func(string) string) {
	if namespace := textOf(subject, "namespace"); namespace != "" {
		subject["namespace"] = mapped(namespace)
	}
	if name := textOf(subject, "name"); name != "" {
		subject["name"] = mapPrincipal(name, mapped)
	}
}

// mapFlowSchema follows the mapping in the subjects of a FlowSchema.
func mapFlowSchema(obj object, mapped func(string) string) {
	for _, rule := range objectList(childObject(obj, "spec"), "rules") {
		for _, subject := range objectList(rule, "subjects") {
			for _, key := range []string{"serviceAccount", "user", "group"} {
				mapSubject(childObject(subject, key), mapped)
			}
		}
	}
}

// mapPrincipal follows the mapping in the name of a user or group.
func mapPrincipal(name string, mapped func(string) string) string {
	if before, namespace, after := splitPrincipal(name); namespace != "" {
		return before + mapped(namespace) + after
	}
	return name
}

// splitPrincipal splits the name of a user or group around the namespace in it, "" where it has none.
func splitPrincipal(name string) (before, namespace, after string) {
	for _, prefix := range accountPrefixes {
		if rest, found := strings.CutPrefix(name, prefix); found {
			namespace, _, _ = strings.Cut(rest, ":")
			return prefix, namespace, rest[len(namespace):]
		}
	}
	return name, "", ""
}

// nameAccount returns an entry of a list of accounts as people read it, and the namespace in it.
func nameAccount(entry any) (name, namespace string) {
	subject, ok := entry.(object)
	if !ok {
		name, _ = entry.(string)
		_, namespace, _ = splitPrincipal(name)
		return name, namespace
	}
	name = textOf(subject, "kind") + " " + textOf(subject, "name")
	if namespace = textOf(subject, "namespace"); namespace != "" {
		return textOf(subject, "kind") + " " + namespace + "/" + textOf(subject, "name"), namespace
	}
	_, namespace, _ = splitPrincipal(textOf(subject, "name"))
	return name, namespace
}

// calledServices returns the references to Services that the API server calls for an object, by the name
// of the webhook, "" where there can be only one.
func calledServices(obj object, resource string) map[string]object {
	var path []string
	switch resource {
	case apiServices:
		path = []string{"spec", "service"}
	case definitions:
		path = []string{"spec", "conversion", "webhook", "clientConfig", "service"}
	case mutatingWebhooks, validatingWebhooks:
		out := map[string]object{}
		for _, hook := range objectList(obj, "webhooks") {
			if service := childObject(hook, "clientConfig", "service"); service != nil {
				out[textOf(hook, "name")] = service
			}
		}
		return out
	}
	if service := childObject(obj, path...); path != nil && service != nil {
		return map[string]object{"": service}
	}
	return nil
}

// RepointedServices returns the Services that the API server calls for an object and whose namespace was
// mapped, as "namespace/name" in the backup and in the cluster, sorted. source returns the namespace of
// the backup that is mapped to one, "" where none is.
func RepointedServices(obj map[string]any, resource string, source func(target string) string) (pairs [][2]string) {
	for _, service := range calledServices(obj, resource) {
		target, name := textOf(service, "namespace"), textOf(service, "name")
		pair := [2]string{source(target) + "/" + name, target + "/" + name}
		if source(target) != "" && !slices.Contains(pairs, pair) {
			pairs = append(pairs, pair)
		}
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return strings.Compare(a[1], b[1]) })
	return pairs
}
