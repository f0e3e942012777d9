package chart_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
)

const roles = `
kind: Role
metadata: {name: a, namespace: server, labels: {app.kubernetes.io/component: deletion}}
rules:
- {apiGroups: [velero.io], resources: [backups, restores], verbs: [get, list]}
- {apiGroups: [velero.io], resources: [backups], verbs: [get]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [one, two], verbs: [update]}
---
kind: ClusterRole
metadata: {name: a, labels: {app.kubernetes.io/component: deletion}}
rules:
- {apiGroups: ["*"], resources: ["*/finalizers"], verbs: [update]}
- {nonResourceURLs: [/service/*], verbs: [post]}
---
kind: ClusterRole
metadata: {name: viewer, labels: {app.kubernetes.io/component: callers}}
rules: [{apiGroups: [velero.io], resources: [backups], verbs: [get]}]
`

func chartGrants(t *testing.T) (all []chart.Grant) {
	t.Helper()
	objects, err := chart.Decode([]byte(roles))
	require.NoError(t, err)
	all, err = chart.Grants(objects)
	require.NoError(t, err)
	return all
}

func TestGrantsAreTheLeastPartsOfTheRolesOfServices(t *testing.T) {
	var have []string
	for _, g := range chartGrants(t) {
		have = append(have, g.String())
	}
	require.Equal(t, []string{
		"deletion: get backups.velero.io in the namespace", "deletion: get restores.velero.io in the namespace",
		"deletion: list backups.velero.io in the namespace", "deletion: list restores.velero.io in the namespace",
		"deletion: update configmaps one in the namespace", "deletion: update configmaps two in the namespace",
		"deletion: update */finalizers.* in the cluster", "deletion: post /service/* in the cluster",
	}, have)
}

// usedRequests are requests that use each of the grants.
func usedRequests() []chart.Request {
	backups := chart.Request{Service: "deletion", Group: "velero.io", Resource: "backups", Namespace: "server", Verb: "get"}
	restores := backups
	restores.Resource = "restores"
	listed, listedRestores := backups, restores
	listed.Verb, listedRestores.Verb = "list", "list"
	one := chart.Request{Service: "deletion", Resource: "configmaps", Namespace: "server", Name: "one", Verb: "update"}
	two := one
	two.Name = "two"
	return []chart.Request{
		backups, restores, listed, listedRestores, one, two,
		{Service: "deletion", Group: "apps", Resource: "deployments", Subresource: "finalizers", Namespace: "any", Name: "any", Verb: "update"},
		{Service: "deletion", Path: "/service/Method", Verb: "post"},
	}
}

func TestAGrantThatNoRequestUsesIsFound(t *testing.T) {
	require.Empty(t, chart.Unused(chartGrants(t), usedRequests(), nil))
	for i, g := range chartGrants(t) {
		require.Equal(t, []string{"no suite uses " + g.String()}, chart.Unused(chartGrants(t), slices.Delete(usedRequests(), i, i+1), nil))
	}
}

func TestARequestUsesNoGrantOfAnotherKind(t *testing.T) {
	const first, named, wildcard, path = 0, 4, 6, 7
	for _, c := range []struct {
		grant  int
		change func(*chart.Request)
	}{
		{first, func(r *chart.Request) { r.Service = "backup-runner" }},
		{first, func(r *chart.Request) { r.Verb = "watch" }},
		{first, func(r *chart.Request) { r.Group = "example.com" }},
		{first, func(r *chart.Request) { r.Namespace = "other" }},
		{first, func(r *chart.Request) { r.Namespace = "" }},
		{first, func(r *chart.Request) { r.Subresource = "status" }},
		{named, func(r *chart.Request) { r.Name = "three" }},
		{wildcard, func(r *chart.Request) { r.Subresource = "" }},
		{wildcard, func(r *chart.Request) { r.Subresource = "status" }},
		{path, func(r *chart.Request) { r.Path = "/other/Method" }},
	} {
		request := usedRequests()[c.grant]
		require.True(t, chartGrants(t)[c.grant].UsedBy(request))
		c.change(&request)
		require.False(t, chartGrants(t)[c.grant].UsedBy(request), request.String())
	}
}

func TestExceptionsAreOfGrantsThatAreNotUsed(t *testing.T) {
	const finalizers, gone = "deletion: update */finalizers.* in the cluster", "deletion: get pods in the cluster"
	require.Equal(t, []string{
		"a suite uses " + finalizers + ", which is an exception", "the chart does not grant " + gone + ", which is an exception",
	}, chart.Unused(chartGrants(t), usedRequests(), map[string]chart.Exception{finalizers: {}, gone: {}}))
	require.Empty(t, chart.Unused(chartGrants(t), append(usedRequests()[:6], usedRequests()[7]), map[string]chart.Exception{finalizers: {}}))
	require.Empty(t, chart.Unused(chartGrants(t), usedRequests(), map[string]chart.Exception{finalizers: {Sometimes: true}}))
}
