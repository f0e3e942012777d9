package resource

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

var verbs = metav1.Verbs{"create", "delete", "get", "list", "watch"}

func newAPIResource(name, kind string, namespaced bool, short ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, SingularName: strings.ToLower(kind), Kind: kind, Namespaced: namespaced, Verbs: verbs, ShortNames: short}
}

// newDiscoveryServer answers discovery in the form every Kubernetes version understands. Groups of versions are
// served in the order given; a nil list answers 503.
func newDiscoveryServer(t *testing.T, versions []string, lists map[string][]metav1.APIResource) *rest.Config {
	t.Helper()
	mux := http.NewServeMux()
	reply := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		}
	}
	var groups metav1.APIGroupList
	for _, gv := range versions {
		group, _, hasGroup := strings.Cut(gv, "/")
		path := "/apis/" + gv
		if !hasGroup {
			path = "/api/" + gv
			mux.HandleFunc("/api", reply(metav1.APIVersions{Versions: []string{gv}}))
		} else {
			groups.Groups = addVersion(groups.Groups, group, gv)
		}
		if list := lists[gv]; list != nil {
			mux.HandleFunc(path, reply(metav1.APIResourceList{GroupVersion: gv, APIResources: list}))
		} else {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		}
	}
	mux.HandleFunc("/apis", reply(groups))
	mux.HandleFunc("/apis/apiregistration.k8s.io/v1/apiservices", reply(map[string]any{"items": []any{
		map[string]any{"spec": map[string]any{"group": "metrics.k8s.io", "version": "v1", "service": map[string]any{"name": "m"}}},
		apiService("apps", "v1", "onstart"), apiService("example.com", "v1", "true"),
	}}))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, QPS: -1}
}

// apiService is one that the server keeps itself.
func apiService(group, version, managed string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"labels": map[string]string{"kube-aggregator.kubernetes.io/automanaged": managed}},
		"spec":     map[string]any{"group": group, "version": version},
	}
}

func addVersion(groups []metav1.APIGroup, group, gv string) []metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: strings.TrimPrefix(gv, group+"/")}
	for i := range groups {
		if groups[i].Name == group {
			groups[i].Versions = append(groups[i].Versions, v)
			return groups
		}
	}
	return append(groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
}

func newTestCluster(t *testing.T) *rest.Config {
	return newDiscoveryServer(t, []string{"v1", "extensions/v1beta1", "apps/v1", "apps/v1beta1", "metrics.k8s.io/v1", "example.com/v1"},
		map[string][]metav1.APIResource{
			"v1": {newAPIResource("configmaps", "ConfigMap", true, "cm"), newAPIResource("persistentvolumes", "PersistentVolume", false, "pv"),
				newAPIResource("persistentvolumeclaims", "PersistentVolumeClaim", true, "pvc"), newAPIResource("pods", "Pod", true, "po"),
				{Name: "pods/log", Kind: "Pod", Namespaced: true, Verbs: verbs}, {Name: "bindings", Kind: "Binding", Verbs: metav1.Verbs{"create"}}},
			"extensions/v1beta1": {newAPIResource("deployments", "Deployment", true), newAPIResource("ingresses", "Ingress", true)},
			"apps/v1":            {newAPIResource("deployments", "Deployment", true, "deploy"), newAPIResource("statefulsets", "StatefulSet", true, "sts")},
			"apps/v1beta1":       {newAPIResource("deployments", "Deployment", true), newAPIResource("oldthings", "OldThing", true)},
			"example.com/v1":     {newAPIResource("pods", "FakePod", true), newAPIResource("widgets", "Widget", false)},
		})
}

func resourceNames(rs []Resource) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.GVR().GroupVersion().String()+" "+r.Name)
	}
	return out
}

func TestDiscoverOrderAndPreference(t *testing.T) {
	c, err := Discover(t.Context(), newTestCluster(t))
	require.NoError(t, err)
	require.Equal(t, []string{
		"v1 pods", "v1 persistentvolumeclaims", "v1 persistentvolumes", "v1 configmaps",
		"apps/v1 deployments", "apps/v1 statefulsets", "apps/v1beta1 oldthings",
		"example.com/v1 pods", "example.com/v1 widgets",
		"extensions/v1beta1 ingresses",
	}, resourceNames(c.Backupable(nil)))
}

// Deployments of extensions show the objects of apps: a filter that leaves the latter out selects
// the former, which are not dropped as seen already.
func TestCohabitingKindsAreComparedAfterTheFilter(t *testing.T) {
	c, err := Discover(t.Context(), newTestCluster(t))
	require.NoError(t, err)
	only := func(groups ...string) []string {
		return resourceNames(c.Backupable(func(gr schema.GroupResource, _ bool) bool {
			return gr.Resource == "deployments" && slices.Contains(groups, gr.Group)
		}))
	}
	require.Equal(t, []string{"extensions/v1beta1 deployments"}, only("extensions"))
	require.Equal(t, []string{"apps/v1 deployments"}, only("apps", "extensions"))
}

func TestDeadGroupIsReported(t *testing.T) {
	c, err := Discover(t.Context(), newTestCluster(t))
	require.NoError(t, err)
	require.Len(t, c.Failures(), 1)
	require.Equal(t, schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}, c.Failures()[0].GroupVersion)
	require.Error(t, c.Failures()[0].Err)
}

// The document of a group is decoded whole: an aggregated server that sends gigabytes costs its own
// group, and no memory.
func TestADocumentIsBounded(t *testing.T) {
	for n, failures := range map[int]int{100: 0, 20_000: 1} {
		many := make([]metav1.APIResource, n)
		for i := range many {
			many[i] = newAPIResource(fmt.Sprintf("things%06d", i), "Thing", true)
		}
		c, err := Discover(t.Context(), newDiscoveryServer(t, []string{"v1", "hostile.example.com/v1"},
			map[string][]metav1.APIResource{"v1": {newAPIResource("pods", "Pod", true)}, "hostile.example.com/v1": many}))
		require.NoError(t, err)
		require.Len(t, c.Failures(), failures)
		require.Contains(t, resourceNames(c.All()), "v1 pods")
	}
}

func TestCustomResourcesAreMarked(t *testing.T) {
	c, err := Discover(t.Context(), newTestCluster(t))
	require.NoError(t, err)
	for _, r := range c.All() {
		require.Equal(t, r.Kind.Group == "example.com", r.Custom, r)
	}
}

func TestAggregatedGroupsAreMarked(t *testing.T) {
	cfg := newDiscoveryServer(t, []string{"v1", "metrics.k8s.io/v1"}, map[string][]metav1.APIResource{
		"v1": {newAPIResource("pods", "Pod", true)}, "metrics.k8s.io/v1": {newAPIResource("things", "Thing", true)}})
	c, err := Discover(t.Context(), cfg)
	require.NoError(t, err)
	thing, ok := c.Lookup(schema.GroupResource{Group: "metrics.k8s.io", Resource: "things"})
	require.True(t, ok)
	require.True(t, thing.Aggregated)
	pod, _ := c.Lookup(schema.GroupResource{Resource: "pods"})
	require.False(t, pod.Aggregated)
}

func TestResolve(t *testing.T) {
	c, err := Discover(t.Context(), newTestCluster(t))
	require.NoError(t, err)
	tests := map[string]struct {
		want       schema.GroupResource
		namespaced bool
	}{
		"pods":                {schema.GroupResource{Resource: "pods"}, true},
		"po":                  {schema.GroupResource{Resource: "pods"}, true},
		"Pod":                 {schema.GroupResource{Resource: "pods"}, true},
		"pods.example.com":    {schema.GroupResource{Group: "example.com", Resource: "pods"}, true},
		"deploy":              {schema.GroupResource{Group: "apps", Resource: "deployments"}, true},
		"deploy.apps":         {schema.GroupResource{Group: "apps", Resource: "deployments"}, true},
		"deployments.v1.apps": {schema.GroupResource{Group: "apps", Resource: "deployments"}, true},
		"widget":              {schema.GroupResource{Group: "example.com", Resource: "widgets"}, false},
		"widgets.example":     {schema.GroupResource{Group: "example.com", Resource: "widgets"}, false},
		"pv":                  {schema.GroupResource{Resource: "persistentvolumes"}, false},
	}
	for name, tt := range tests {
		got, namespaced, ok := c.Resolve(name)
		require.True(t, ok, name)
		require.Equal(t, tt.want, got, name)
		require.Equal(t, tt.namespaced, namespaced, name)
	}
	for _, name := range []string{"", "nothing", "pods.other.io", "widgets.v2.example.com"} {
		_, _, ok := c.Resolve(name)
		require.False(t, ok, name)
	}
}

func TestDiscoverFailures(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Discover(ctx, newTestCluster(t))
	require.ErrorIs(t, err, context.Canceled)

	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	_, err = Discover(t.Context(), &rest.Config{Host: down.URL})
	require.Error(t, err)
}

func TestVersionsWithoutAStatusSubresource(t *testing.T) {
	status := func(name, kind string) metav1.APIResource {
		return metav1.APIResource{Name: name + "/status", Kind: kind}
	}
	widgets, gadgets := newAPIResource("widgets", "Widget", true), newAPIResource("gadgets", "Gadget", true)
	catalog, err := Discover(t.Context(), newDiscoveryServer(t, []string{"example.com/v2", "example.com/v1"}, map[string][]metav1.APIResource{
		"example.com/v1": {widgets}, "example.com/v2": {widgets, status("widgets", "Widget"), gadgets, status("gadgets", "Gadget")},
	}))
	require.NoError(t, err)
	for name, want := range map[string][]string{"widgets": {"v1"}, "gadgets": nil} {
		r, ok := catalog.Lookup(schema.GroupResource{Group: "example.com", Resource: name})
		require.True(t, ok)
		require.Equal(t, want, r.PlainStatus, name)
	}
}
