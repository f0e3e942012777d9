package restore_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

const (
	clusterAPI   = "cluster.x-k8s.io/v1beta2"
	addonsAPI    = "addons.cluster.x-k8s.io/v1beta2"
	bootstrapAPI = "bootstrap.cluster.x-k8s.io/v1beta2"
	dockerAPI    = "infrastructure.cluster.x-k8s.io/v1beta2"
)

// addCustom adds a custom resource of namespace "a", with the references that the rules find in it, and has
// the server serve its kind.
func (b *backup) addCustom(t *testing.T, s *kubetest.Server, apiVersion, plural, kind, name string, spec object, owners ...object) {
	t.Helper()
	group, _, _ := strings.Cut(apiVersion, "/")
	s.Serve(apiVersion, plural, kind, true)
	b.addObject(plural+"."+group, apiVersion, kind, "a", name, object{"spec": spec}, owners...)
	body, err := json.Marshal(object{"spec": spec})
	require.NoError(t, err)
	found, _ := reference.For(schema.GroupKind{Group: group, Kind: kind}).Find("a", body)
	b.items[len(b.items)-1].References = append(b.items[len(b.items)-1].References, found...)
}

// newManagementBackup is a backup of objects of Cluster API that own and name one another.
func newManagementBackup(t *testing.T, s *kubetest.Server) *backup {
	t.Helper()
	b, cluster := &backup{}, ownerBy(clusterAPI, "Cluster", "c", true)
	named := func(group, kind, name string) object { return object{"apiGroup": group, "kind": kind, "name": name} }
	b.addCustom(t, s, clusterAPI, "clusters", "Cluster", "c", object{"infrastructureRef": named("infrastructure.cluster.x-k8s.io", "DockerCluster", "dc"),
		"topology": object{"classRef": object{"name": "quick"}}})
	b.addCustom(t, s, clusterAPI, "clusterclasses", "ClusterClass", "quick", object{})
	b.addCustom(t, s, dockerAPI, "dockerclusters", "DockerCluster", "dc", object{}, cluster)
	for _, m := range []string{"m0", "m1", "m2"} {
		machine := ownerBy(clusterAPI, "Machine", m, true)
		b.addCustom(t, s, clusterAPI, "machines", "Machine", m, object{"clusterName": "c", "infrastructureRef": named("infrastructure.cluster.x-k8s.io", "DockerMachine", "dm-"+m),
			"bootstrap": object{"configRef": named("bootstrap.cluster.x-k8s.io", "KubeadmConfig", "kc-"+m), "dataSecretName": "data-" + m}}, cluster)
		b.addCustom(t, s, dockerAPI, "dockermachines", "DockerMachine", "dm-"+m, object{}, machine)
		b.addCustom(t, s, bootstrapAPI, "kubeadmconfigs", "KubeadmConfig", "kc-"+m, object{}, machine)
		b.addObject("secrets", "v1", "Secret", "a", "data-"+m, nil, ownerBy(bootstrapAPI, "KubeadmConfig", "kc-"+m, true))
	}
	b.addCustom(t, s, addonsAPI, "clusterresourcesets", "ClusterResourceSet", "crs", object{"resources": []any{object{"kind": "Secret", "name": "cni"}}})
	b.addCustom(t, s, addonsAPI, "clusterresourcesetbindings", "ClusterResourceSetBinding", "crsb", object{"clusterName": "c",
		"bindings": []any{object{"clusterResourceSetName": "crs"}}}, ownerBy(addonsAPI, "ClusterResourceSet", "crs", true))
	b.addObject("secrets", "v1", "Secret", "a", "cni", nil, ownerBy(addonsAPI, "ClusterResourceSet", "crs", true))
	return b
}

// Admission refused a binding of Cluster API before its Cluster, and a Machine before its infrastructure:
// custom resources came in alphabetical order.
func TestAdmissionFindsWhatAnObjectNames(t *testing.T) {
	s := kubetest.Start(t)
	b := newManagementBackup(t, s)
	needs := map[string][]string{ // by the name of the object; owners are not among them
		"c":    {"/apis/" + clusterAPI + "/namespaces/a/clusterclasses/quick", "/apis/" + dockerAPI + "/namespaces/a/dockerclusters/dc"},
		"crsb": {"/apis/" + clusterAPI + "/namespaces/a/clusters/c"}, "crs": {secretsPath + "/cni"},
	}
	for _, m := range []string{"m0", "m1", "m2"} {
		needs[m] = []string{"/apis/" + dockerAPI + "/namespaces/a/dockermachines/dm-" + m, "/apis/" + bootstrapAPI + "/namespaces/a/kubeadmconfigs/kc-" + m, secretsPath + "/data-" + m}
	}
	var mu sync.Mutex
	var early []string
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		name, _ := kubetest.Meta(body)["name"].(string)
		for _, path := range needs[name] {
			if r.Method == http.MethodPost && s.Object(path) == nil {
				mu.Lock()
				early = append(early, name+" before "+path)
				mu.Unlock()
			}
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, early, "a webhook would refuse them")
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages(), "no cycle is left to warn of")
	for _, item := range b.items {
		if item.Kind == "Namespace" || item.Kind == "CustomResourceDefinition" {
			continue
		}
		at := func(apiVersion, plural, name string) string {
			return "/apis/" + apiVersion + "/namespaces/a/" + plural + "/" + name
		}
		path := at(item.Group+"/"+item.Version, item.Resource, item.Name)
		if item.Group == "" {
			path = secretsPath + "/" + item.Name
		}
		refs := ownersAt(s, path)
		require.Len(t, refs, len(item.Owners), path)
		for _, o := range item.Owners {
			owner := at(o.APIVersion, map[string]string{"Cluster": "clusters", "Machine": "machines", "KubeadmConfig": "kubeadmconfigs", "ClusterResourceSet": "clusterresourcesets"}[o.Kind], o.Name)
			require.Equal(t, s.UID(owner), refs[0].(object)["uid"], path)
		}
	}
}
