package rights

import (
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Request is one thing that rules allow: one of its fields is set.
type Request struct {
	Resource *authorizationv1.ResourceAttributes
	Path     *authorizationv1.NonResourceAttributes
}

// Requests returns everything that the rules allow, each once; namespace is the server's.
func (r Rules) Requests(namespace string) []Request {
	var out []Request
	seen := map[string]bool{}
	add := func(q Request) {
		if !seen[q.String()] {
			seen[q.String()] = true
			out = append(out, q)
		}
	}
	for i := range r.Namespaced {
		expandRule(&r.Namespaced[i], namespace, add)
	}
	for i := range r.Cluster {
		expandRule(&r.Cluster[i], "", add)
	}
	return out
}

func expandRule(rule *rbacv1.PolicyRule, namespace string, add func(Request)) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, verb := range rule.Verbs {
		for _, path := range rule.NonResourceURLs {
			add(Request{Path: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb}})
		}
		for _, group := range rule.APIGroups {
			for _, full := range rule.Resources {
				resource, sub, _ := strings.Cut(full, "/")
				for _, name := range names {
					add(Request{Resource: &authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: sub, Name: name,
					}})
				}
			}
		}
	}
}

// String is the request in words, as "get backups.velero.io in velero".
func (q Request) String() string {
	if q.Path != nil {
		return q.Path.Verb + " " + q.Path.Path
	}
	a := q.Resource
	words := []string{a.Verb, a.Resource}
	if a.Subresource != "" {
		words[1] += "/" + a.Subresource
	}
	if a.Group != "" {
		words[1] += "." + a.Group
	}
	if a.Name != "" {
		words = append(words, `"`+a.Name+`"`)
	}
	if a.Namespace != "" {
		words = append(words, "in "+a.Namespace)
	}
	return strings.Join(slices.Clip(words), " ")
}
