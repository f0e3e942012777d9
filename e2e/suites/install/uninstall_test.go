//go:build node

package install

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func unstructuredOf(object map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object}
}

// testUninstall compares the objects of the cluster with those before the installation: beside those of
// the other tests there are the definitions, the backups and restores, NATS's volume, and the password of
// the data of volumes.
func (b *bed) testUninstall(t *testing.T, before map[string]bool) {
	b.runHelm(t, "", "uninstall")
	var left []string
	require.Eventually(t, func() bool { // Pods end, and take their objects along
		left = b.leftObjects(t, before)
		return len(left) == 0
	}, patience, time.Second, "objects are left: %v", &left)
	for _, kind := range []string{"customresourcedefinitions.apiextensions.k8s.io ", "backups.velero.io ", "restores.velero.io ", passwordSecret} {
		require.True(t, slices.ContainsFunc(b.objectNames(t), func(name string) bool { return strings.HasPrefix(name, kind) }), "%s is left", kind)
	}
	require.Equal(t, velerov1.BackupPhaseCompleted, b.awaitCompleted(t, "app").Status.Phase)
}

// leftObjects returns the objects that are neither data nor of the tests.
func (b *bed) leftObjects(t *testing.T, before map[string]bool) []string {
	t.Helper()
	return slices.DeleteFunc(b.objectNames(t), func(name string) bool {
		kind, object, _ := strings.Cut(name, " ")
		namespace, only, _ := strings.Cut(object, "/")
		group := kind[strings.Index(kind, ".")+1:]
		switch {
		case before[name], namespace != server && namespace != "", strings.HasPrefix(kind, "events"):
			return true // what was there, and namespaces of the tests
		case group == "velero.io":
			return only != "default" || kind != "backupstoragelocations.velero.io" // a location is the chart's
		case namespace == "":
			return !strings.Contains(only, "holdfast") || kind == "customresourcedefinitions.apiextensions.k8s.io"
		}
		return slices.Contains(ofTests, name)
	})
}

// What the API server and the tests make in a namespace, and what has to stay.
var ofTests = []string{
	"configmaps " + server + "/kube-root-ca.crt", "serviceaccounts " + server + "/default", "serviceaccounts " + server + "/viewer",
	"serviceaccounts " + server + "/operator", "serviceaccounts " + server + "/admin", "persistentvolumeclaims " + server + "/data-holdfast-nats-0", passwordSecret,
}

// passwordSecret has the password without which no data of volumes can be restored.
const passwordSecret = "secrets " + server + "/" + velerov1.RepositorySecret

// clusterObjects returns the names of all objects of the cluster.
func (b *bed) clusterObjects(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, name := range b.objectNames(t) {
		found[name] = true
	}
	return found
}

// objectNames lists every object of the cluster, as resource.group namespace/name.
func (b *bed) objectNames(t *testing.T) (names []string) {
	t.Helper()
	all, err := metadata.NewForConfig(b.config)
	require.NoError(t, err)
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(b.config).ServerPreferredResources()
	require.NoError(t, err)
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") {
				continue
			}
			found, err := all.Resource(version.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err, resource.Name)
			kind := version.WithResource(resource.Name).GroupResource().String()
			for i := range found.Items {
				names = append(names, kind+" "+found.Items[i].Namespace+"/"+found.Items[i].Name)
			}
		}
	}
	return names
}
