package chart

import (
	"fmt"
	"slices"
	"strings"

	authzv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
)

// Grant is the least part of a role: one verb for one resource, of one name if that is limited, or for
// one path.
type Grant struct {
	Service, Namespace string // where it holds; empty everywhere
	rule               rbacv1.PolicyRule
}

// Grants returns what the rendered roles of the services grant, each once.
func Grants(objects []*unstructured.Unstructured) ([]Grant, error) {
	var all []Grant
	seen := map[string]bool{}
	for _, object := range objects {
		service := object.GetLabels()["app.kubernetes.io/component"]
		if kind := object.GetKind(); kind != "Role" && kind != "ClusterRole" || !slices.Contains(fleet.Services, service) {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		for _, rule := range role.Rules {
			for _, least := range splitRule(rule) {
				g := Grant{Service: service, Namespace: role.Namespace, rule: least}
				if !seen[g.String()] {
					seen[g.String()] = true
					all = append(all, g)
				}
			}
		}
	}
	return all, nil
}

// splitRule returns the least rules that together allow what a rule does.
func splitRule(rule rbacv1.PolicyRule) (all []rbacv1.PolicyRule) {
	names := make([][]string, 0, len(rule.ResourceNames))
	for _, name := range rule.ResourceNames {
		names = append(names, []string{name})
	}
	if len(names) == 0 {
		names = [][]string{nil}
	}
	for _, verb := range rule.Verbs {
		verbs := []string{verb}
		for _, path := range rule.NonResourceURLs {
			all = append(all, rbacv1.PolicyRule{Verbs: verbs, NonResourceURLs: []string{path}})
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					all = append(all, rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: name})
				}
			}
		}
	}
	return all
}

// UsedBy reports whether the request needed this grant, or could have been allowed by it as well.
func (g Grant) UsedBy(r Request) bool {
	return r.Service == g.Service && (g.Namespace == "" || g.Namespace == r.Namespace) && r.Matches(&g.rule)
}

// resourceAttributes are what a review asks about this grant, which must be of a resource.
func (g Grant) resourceAttributes() *authzv1.ResourceAttributes {
	a := &authzv1.ResourceAttributes{Namespace: g.Namespace, Verb: g.rule.Verbs[0], Group: g.rule.APIGroups[0], Name: strings.Join(g.rule.ResourceNames, "")}
	a.Resource, a.Subresource, _ = strings.Cut(g.rule.Resources[0], "/")
	return a
}

// String is the grant as docs/rights.md has it.
func (g Grant) String() string {
	where := "cluster"
	if g.Namespace != "" {
		where = "namespace"
	}
	if len(g.rule.NonResourceURLs) > 0 {
		return fmt.Sprintf("%s: %s %s in the %s", g.Service, g.rule.Verbs[0], g.rule.NonResourceURLs[0], where)
	}
	what := g.rule.Resources[0]
	if group := g.rule.APIGroups[0]; group != "" {
		what += "." + group
	}
	for _, name := range g.rule.ResourceNames {
		what += " " + name
	}
	return fmt.Sprintf("%s: %s %s in the %s", g.Service, g.rule.Verbs[0], what, where)
}
