package chart

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Request is what an account asked for. Either Resource or Path is set.
type Request struct {
	Service, Verb, Group, Resource, Subresource, Namespace, Name, Path string
}

// Matches reports whether a rule allows a request, wherever the rule holds.
func (r Request) Matches(rule *rbacv1.PolicyRule) bool {
	if !hasText(rule.Verbs, r.Verb) {
		return false
	}
	if r.Path != "" {
		return slices.ContainsFunc(rule.NonResourceURLs, func(pattern string) bool {
			start, wild := strings.CutSuffix(pattern, "*")
			return pattern == r.Path || wild && strings.HasPrefix(r.Path, start)
		})
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return hasText(rule.APIGroups, r.Group) && (hasText(rule.Resources, resource) || r.Subresource != "" && hasText(rule.Resources, "*/"+r.Subresource)) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name))
}

// AllowedBy reports whether one of the rules allows a request.
func (r Request) AllowedBy(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return r.Matches(&rule) })
}

func hasText(all []string, one string) bool {
	return slices.Contains(all, one) || slices.Contains(all, "*")
}

// String is the request as a sentence.
func (r Request) String() string {
	if r.Path != "" {
		return fmt.Sprintf("%s: %s %s", r.Service, r.Verb, r.Path)
	}
	return fmt.Sprintf("%s: %s %s.%s/%s %s/%s", r.Service, r.Verb, r.Resource, r.Group, r.Subresource, r.Namespace, r.Name)
}
