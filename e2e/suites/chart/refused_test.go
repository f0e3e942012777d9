package chart_test

import (
	"bytes"
	"io"
	"net/http"
	"path"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/service/rights"
)

// tried are the resources that accounts send requests for, with their subresources.
var tried = []string{
	"secrets", "configmaps", "pods", "nodes", "namespaces", "serviceaccounts", "persistentvolumes", "leases", "events", "deployments", "roles", "clusterrolebindings",
	"customresourcedefinitions", "apiservices", "validatingwebhookconfigurations", "certificatesigningrequests", "backups", "restores", "schedules", "backupstoragelocations", "deletebackuprequests",
}

// methods are those of HTTP by verb.
var methods = map[string]string{
	"get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch,
	"delete": http.MethodDelete, "deletecollection": http.MethodDelete,
}

// requestsAreRefused sends requests as each account, without effect where they are allowed: dry runs
// without an object, and deletions of what is not there. Those that the table does not have are
// answered with 403, and no others.
func requestsAreRefused(t *testing.T, cluster *testbed.Cluster, kinds []servedKind) {
	for _, service := range rights.Services() {
		config := cluster.RestConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: chart.User(namespace, service), Groups: chart.Groups(namespace)}
		httpClient, err := rest.HTTPClientFor(config)
		require.NoError(t, err)
		table, byURL := rights.RulesOf(service, allOptions), map[chart.Request]string{}
		var all []chart.Request
		for _, k := range kinds {
			for _, r := range requestsFor(k) {
				if r.Verb == "watch" && tableAllows(table, r) {
					continue // it would be served for as long as the client stays
				}
				all, byURL[r] = append(all, r), cluster.URL()+k.requestURL(r)
			}
		}
		var refused atomic.Int64
		inParallel(all, func(r chart.Request) {
			code, err := sendRequest(t, httpClient, r, byURL[r])
			switch {
			case err != nil:
				t.Errorf("%s: %s: %v", service, r, err)
			case tableAllows(table, r) == (code == http.StatusForbidden) || code == http.StatusUnauthorized:
				t.Errorf("%s: %s (%s) is answered with %d", service, r, byURL[r], code)
			case code == http.StatusForbidden:
				refused.Add(1)
			}
		})
		httpClient.CloseIdleConnections()
		require.Greater(t, refused.Load(), int64(100), service)
		t.Logf("%s: %d of %d requests are refused", service, refused.Load(), len(all))
	}
}

// requestsFor returns the requests for a resource that is tried, for what it is there.
func requestsFor(k servedKind) (all []chart.Request) {
	if !slices.Contains(tried, k.resource) {
		return nil
	}
	places, asked := []string{""}, verbs
	if k.namespaced {
		places = []string{namespace, other}
	}
	if k.subresource != "" {
		asked = []string{"get", "create", "update", "patch"}
	}
	for _, place := range places {
		for _, verb := range asked {
			r := chart.Request{Verb: verb, Group: k.group, Resource: k.resource, Subresource: k.subresource, Namespace: place}
			if k.subresource != "" || slices.Contains([]string{"get", "update", "patch", "delete"}, verb) {
				r.Name = "absent"
			}
			all = append(all, r)
		}
	}
	return all
}

// requestURL is where a request for this resource is sent.
func (k servedKind) requestURL(r chart.Request) string {
	root := path.Join("/apis", k.group, k.version)
	if k.group == "" {
		root = path.Join("/api", k.version)
	}
	if r.Namespace != "" {
		root = path.Join(root, "namespaces", r.Namespace)
	}
	full := path.Join(root, r.Resource, r.Name, r.Subresource)
	switch r.Verb {
	case "watch":
		return full + "?watch=1&timeoutSeconds=1"
	case "get", "list":
		return full
	}
	return full + "?dryRun=All"
}

func sendRequest(t *testing.T, c *http.Client, r chart.Request, url string) (code int, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), methods[r.Verb], url, bytes.NewReader([]byte("{}")))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[r.Verb == "patch"])
	answer, err := c.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode, err
}
