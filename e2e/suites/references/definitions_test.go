package references

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// definitionFiles are the files with the definitions, by the modules that publish them. Their versions are
// those of e2e/tools/definitions/go.mod.
var definitionFiles = map[string][]string{
	"sigs.k8s.io/cluster-api": {
		"config/crd/bases/cluster.x-k8s.io_clusters.yaml", "config/crd/bases/cluster.x-k8s.io_machines.yaml",
		"config/crd/bases/cluster.x-k8s.io_machinesets.yaml", "config/crd/bases/cluster.x-k8s.io_machinedeployments.yaml",
		"config/crd/bases/addons.cluster.x-k8s.io_clusterresourcesets.yaml", "config/crd/bases/addons.cluster.x-k8s.io_clusterresourcesetbindings.yaml",
		"controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml",
		"bootstrap/kubeadm/config/crd/bases/bootstrap.cluster.x-k8s.io_kubeadmconfigs.yaml",
		"bootstrap/kubeadm/config/crd/bases/bootstrap.cluster.x-k8s.io_kubeadmconfigtemplates.yaml",
	},
	"sigs.k8s.io/cluster-api/test": {
		"infrastructure/docker/config/crd/bases/infrastructure.cluster.x-k8s.io_dockerclusters.yaml",
		"infrastructure/docker/config/crd/bases/infrastructure.cluster.x-k8s.io_dockermachines.yaml",
		"infrastructure/docker/config/crd/bases/infrastructure.cluster.x-k8s.io_dockermachinetemplates.yaml",
	},
	"github.com/cert-manager/cert-manager": {
		"deploy/crds/crd-issuers.yaml", "deploy/crds/crd-certificates.yaml", "deploy/crds/crd-certificaterequests.yaml",
	},
	"github.com/cloudnative-pg/cloudnative-pg": {
		"config/crd/bases/postgresql.cnpg.io_clusters.yaml", "config/crd/bases/postgresql.cnpg.io_backups.yaml",
		"config/crd/bases/postgresql.cnpg.io_scheduledbackups.yaml", "config/crd/bases/postgresql.cnpg.io_poolers.yaml",
	},
}

// installDefinitions creates published definitions and waits until the API server serves their kinds.
func installDefinitions(t *testing.T, s *site.Site, definitions map[string][]string) {
	t.Helper()
	var names []string
	for module, files := range definitions {
		dir := downloadModule(t, module)
		for _, file := range files {
			crd := readDefinition(t, filepath.Join(dir, filepath.FromSlash(file)))
			require.NoError(t, s.Client.Create(t.Context(), crd), file)
			names = append(names, crd.Name)
		}
	}
	for _, name := range names {
		require.Eventually(t, func() bool {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			return s.Client.Get(t.Context(), client.ObjectKey{Name: name}, crd) == nil && isEstablished(crd)
		}, site.Patience, site.Look, "%s is served", name)
	}
}

// contracts are the labels that all definitions of Cluster API get where it is installed.
var contracts = map[string]string{"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"}

// readDefinition reads a definition. Its own labels are templates of a chart in some.
func readDefinition(t *testing.T, path string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(text, crd), path)
	crd.Labels = contracts
	return crd
}

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// downloadModule returns the directory of a module in the module cache, where it is downloaded to once.
func downloadModule(t *testing.T, module string) string {
	t.Helper()
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	command.Dir = filepath.Join(root, "e2e", "tools", "definitions")
	command.Env = append(os.Environ(), "GOWORK=off")
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	require.NoError(t, err, "%s %s", out, &complaints)
	var found struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &found))
	return found.Dir
}

// createWhenServed creates an object once the API server serves its kind.
func createWhenServed(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	var last error
	require.Eventually(t, func() bool {
		last = c.Create(t.Context(), object)
		return last == nil || apierrors.IsInvalid(last) || apierrors.IsBadRequest(last)
	}, site.Patience, site.Look, "%s %s", object.GetObjectKind().GroupVersionKind().Kind, object.GetName())
	require.NoError(t, last)
}
