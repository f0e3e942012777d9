package chart_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/pkg/service/rights"
)

// everything are the arguments of helm template, and the options of the table, with which services
// have all the rights that they can have.
var (
	everything = []string{"--set", "features={EnableCSI},auth=kubernetes,hooks.enabled=true"}
	allOptions = rights.Options{CSI: true, Hooks: true, Reviews: true}
)

// other is a namespace that is not the server's.
const other = "other"

var (
	verbs   = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	special = []string{"escalate", "bind", "impersonate", "approve", "sign", "attest", "use"}
	// specials are the resources that some special verb is for, and one that has none.
	specials  = []string{"roles", "clusterroles", "users", "groups", "serviceaccounts", "userextras", "signers", "things"}
	pathVerbs = []string{"get", "post", "put", "patch", "delete"}
	paths     = []string{
		"/", "/metrics", "/logs", "/debug/pprof/", "/configz", "/healthz", "/livez", "/readyz", "/version", "/api", "/apis", "/openapi/v3", "/.well-known/openid-configuration", "/openid/v1/jwks",
		"/holdfast.operation.v1.OperationService/GetProgress", "/holdfast.operation.v1.OperationService/Cancel", "/holdfast.operation.v1.OperationMonitorService/ListOperations",
		"/holdfast.queue.v1.QueueService/CancelBackup", "/holdfast.queue.v1.QueueService/SubmitBackup", "/holdfast.backup.v1.BackupService/GetProgress",
		"/holdfast.restore.v1.RestoreService/GetProgress", "/holdfast.deletion.v1.DeletionService/DeleteBackup", "/holdfast.manifest.v1.ManifestService/GetItem",
	}
)

// servedKind is a resource or subresource, whether a server serves it or not.
type servedKind struct {
	group, resource, subresource string
	version                      string // empty for what is not served
	namespaced                   bool
}

// servedKinds returns the resources that a server serves, each in one version.
func servedKinds(t *testing.T, d discovery.DiscoveryInterface) (all []servedKind) {
	t.Helper()
	lists, err := d.ServerPreferredResources()
	require.NoError(t, err)
	versions := map[string]bool{}
	for _, list := range lists {
		versions[list.GroupVersion] = true
	}
	seen := map[servedKind]bool{}
	for version := range versions {
		list, err := d.ServerResourcesForGroupVersion(version) // with subresources
		require.NoError(t, err)
		of, err := schema.ParseGroupVersion(version)
		require.NoError(t, err)
		for i := range list.APIResources {
			k := servedKind{group: of.Group, namespaced: list.APIResources[i].Namespaced}
			k.resource, k.subresource, _ = strings.Cut(list.APIResources[i].Name, "/")
			if !seen[k] {
				seen[k] = true
				k.version = of.Version
				all = append(all, k)
			}
		}
	}
	return all
}

// unservedKinds are resources that are not served here: those of the table, what only admission and
// authentication ask about, and one of no known group.
func unservedKinds(have []servedKind) (all []servedKind) {
	add := func(k servedKind) {
		same := func(o servedKind) bool {
			return o.group == k.group && o.resource == k.resource && o.subresource == k.subresource
		}
		if !slices.ContainsFunc(have, same) && !slices.ContainsFunc(all, same) {
			all = append(all, k)
		}
	}
	for _, service := range rights.Services() {
		for _, q := range rights.RulesOf(service, allOptions).Requests(namespace) {
			if a := q.Resource; a != nil && a.Resource != "*" {
				add(servedKind{group: a.Group, resource: a.Resource, subresource: a.Subresource, namespaced: true})
			}
		}
	}
	for _, resource := range []string{"users", "groups"} {
		add(servedKind{resource: resource})
	}
	add(servedKind{group: "authentication.k8s.io", resource: "userextras"})
	add(servedKind{group: "certificates.k8s.io", resource: "signers"})
	for _, subresource := range []string{"", "status", "finalizers"} {
		add(servedKind{group: "example.com", resource: "things", subresource: subresource, namespaced: true})
		add(servedKind{group: "apps", resource: "deployments", subresource: subresource, namespaced: true})
	}
	return all
}

// askedNames are those of objects that are asked about: without a name, one that no rule has, and those of
// rules.
func askedNames(resource string) []string {
	switch resource {
	case "configmaps":
		return []string{"", "any", "holdfast-queue"}
	case "namespaces":
		return []string{"", "any", metav1.NamespaceSystem}
	}
	return []string{"any"}
}

// allQuestions returns what is asked about each account: each verb for each resource in the server
// namespace, in another, and in the cluster, and each verb for paths.
func allQuestions(t *testing.T, d discovery.DiscoveryInterface) (all []chart.Request) {
	t.Helper()
	kinds := servedKinds(t, d)
	require.Greater(t, len(kinds), 100, "all resources are discovered")
	for _, k := range append(kinds, unservedKinds(kinds)...) {
		asked, places := verbs, []string{""}
		if k.subresource == "" && slices.Contains(specials, k.resource) {
			asked = append(slices.Clone(verbs), special...)
		}
		if k.namespaced {
			places = []string{"", namespace, other}
		}
		for _, verb := range asked {
			for _, place := range places {
				for _, name := range askedNames(k.resource) {
					all = append(all, chart.Request{Verb: verb, Group: k.group, Resource: k.resource, Subresource: k.subresource, Namespace: place, Name: name})
				}
			}
		}
	}
	for _, path := range paths {
		for _, verb := range pathVerbs {
			all = append(all, chart.Request{Verb: verb, Path: path})
		}
	}
	return all
}
