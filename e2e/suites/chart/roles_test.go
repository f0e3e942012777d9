package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/service/rights"
)

// roleRules returns the rules of the roles that a service, or a role of callers, has.
func roleRules(t *testing.T, objects []*unstructured.Unstructured, has func(*unstructured.Unstructured) bool) []rbacv1.PolicyRule {
	t.Helper()
	var all []rbacv1.PolicyRule
	roles := 0
	for _, object := range objects {
		if kind := object.GetKind(); kind == "Role" || kind == "ClusterRole" {
			var role rbacv1.ClusterRole
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role))
			if has(object) {
				roles++
				all = append(all, role.Rules...)
			}
		}
	}
	require.NotZero(t, roles)
	return all
}

func ofService(name string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool { return o.GetLabels()["app.kubernetes.io/component"] == name }
}

// The table of rights in the docs has every resource of every role, with every verb, in the rows of
// its service or of all services.
func TestTheDocsHaveTheRights(t *testing.T) {
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "rights.md"))
	require.NoError(t, err)
	rows, service := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## ") {
			service = map[string]string{"## All services\n": "all"}[line]
		}
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		if first := strings.TrimSpace(cells[1]); slices.Contains(fleet.Services, first) {
			service = first
		}
		rows[service] = append(rows[service], line)
	}
	word := regexp.MustCompile(`[\w*/.]+`)
	objects := renderChart(t, "--set", "features={EnableCSI}")
	for _, name := range fleet.Services {
		var cells [][]string
		for _, row := range append(slices.Clone(rows[name]), rows["all"]...) {
			for clause := range strings.SplitSeq(row, ";") {
				cells = append(cells, word.FindAllString(clause, -1))
			}
		}
		for _, rule := range roleRules(t, objects, ofService(name)) {
			for _, resource := range rule.Resources {
				resource = strings.TrimSuffix(resource, "s")
				if resource == "*" {
					resource = "*/*"
				}
				for _, verb := range rule.Verbs {
					require.True(t, slices.ContainsFunc(cells, func(words []string) bool {
						return slices.Contains(words, verb) && slices.ContainsFunc(words, func(w string) bool { return strings.TrimSuffix(w, "s") == resource })
					}), "docs/rights.md does not say that %s may %s %s", name, verb, resource)
				}
			}
		}
	}
}

// The table that `holdfast doctor` reviews accounts by is what the chart grants, rule by rule.
func TestTheTableOfRightsIsTheCharts(t *testing.T) {
	for _, c := range []struct {
		values  string
		options rights.Options
	}{
		{"auth=kubernetes", rights.Options{Hooks: true, Reviews: true}},
		{"features={EnableCSI}", rights.Options{CSI: true, Hooks: true, Reviews: true}},
		{"auth=none,tls.mode=none,hooks.enabled=false", rights.Options{}},
	} {
		objects := renderChart(t, "--set", c.values)
		require.ElementsMatch(t, fleet.Services, rights.Services())
		for _, service := range rights.Services() {
			have := rights.RulesOf(service, c.options)
			require.Equal(t, roleRules(t, objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Role" && ofService(service)(o) }), have.Namespaced, "%s with %s", service, c.values)
			require.Equal(t, roleRules(t, objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "ClusterRole" && ofService(service)(o) }), have.Cluster, "%s with %s", service, c.values)
		}
	}
}

// Only the services that back up and restore may look at objects of applications, and volume-mover at the Pods whose volumes are moved.
func TestOnlyRunnersReadApplications(t *testing.T) {
	objects := renderChart(t, "--set", "features={EnableCSI}")
	for _, name := range fleet.Services {
		for _, rule := range roleRules(t, objects, ofService(name)) {
			if strings.HasSuffix(name, "-runner") {
				continue
			}
			require.NotContains(t, rule.Resources, "*", name)
			require.NotContains(t, rule.Verbs, "*", name)
			if slices.Contains(rule.Resources, "pods") {
				require.Equal(t, "volume-mover", name)
				require.NotContains(t, rule.Verbs, "patch")
			}
		}
	}
}
