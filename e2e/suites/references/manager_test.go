//go:build clusterapi

package references

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/proxy"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// managerDefinitions are those that the manager reads besides.
var managerDefinitions = map[string][]string{"sigs.k8s.io/cluster-api": {
	"config/crd/bases/cluster.x-k8s.io_clusterclasses.yaml", "config/crd/bases/cluster.x-k8s.io_machinedrainrules.yaml",
	"config/crd/bases/cluster.x-k8s.io_machinehealthchecks.yaml", "config/crd/bases/cluster.x-k8s.io_machinepools.yaml",
	"config/crd/bases/ipam.cluster.x-k8s.io_ipaddressclaims.yaml", "config/crd/bases/ipam.cluster.x-k8s.io_ipaddresses.yaml",
	"config/crd/bases/runtime.cluster.x-k8s.io_extensionconfigs.yaml",
}}

// TestBesideTheManagerOfClusterAPI restores what Cluster API's manager owns while it runs: it makes and removes
// nothing, and takes the restored objects for its own.
func TestBesideTheManagerOfClusterAPI(t *testing.T) {
	b := newBed(t, managerDefinitions)
	manager := startManager(t, b.Site)
	b.awaitManaged(t, manager)
	b.noteObjects(t)
	before := b.readUIDs(t)
	b.backUp(t)
	manager.Stop(site.Patience)
	b.dropFinalizers(t)
	b.estate.destroy(t, b.Site)

	manager = startManager(t, b.Site)
	b.restoreBeside(t, "beside", func(*admissionv1.AdmissionRequest) bool { return true }, func() {})
	b.awaitManaged(t, manager)
	require.Empty(t, b.estate.faults(t, b.Site))
	after := b.readUIDs(t)
	require.ElementsMatch(t, slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after)), "the manager makes nothing besides")
	b.collectGarbage(t)
	require.Equal(t, after, b.readUIDs(t), "and replaces nothing")
}

// startManager starts the manager, with all rights, until the test is done. Its webhooks listen on all interfaces, for
// want of a flag; nothing calls them.
func startManager(t *testing.T, s *site.Site) *testbed.Process {
	t.Helper()
	path, err := testbed.Binary("cluster-api-manager")
	require.NoError(t, err)
	ports, err := testbed.FreePorts(2)
	require.NoError(t, err)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(t, tellVersion(t, s).WriteKubeconfig(kubeconfig))
	writeCertificate(t, dir)
	manager, err := testbed.StartProcess(testbed.ProcessSpec{Name: "cluster-api-manager", Path: path, LogDir: dir, Args: []string{
		"--kubeconfig", kubeconfig, "--webhook-cert-dir", dir, fmt.Sprintf("--webhook-port=%d", ports[0]),
		fmt.Sprintf("--health-addr=127.0.0.1:%d", ports[1]), "--diagnostics-address=0", "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		manager.Stop(site.Patience)
		if t.Failed() {
			t.Log(testbed.Tail(manager.LogPath(), 30))
		}
	})
	return manager
}

// tellVersion starts a proxy before the API server that tells its version, which a server built from a module does
// not know. The manager asks for it.
func tellVersion(t *testing.T, s *site.Site) *proxy.Proxy {
	t.Helper()
	config := s.Cluster.RestConfig()
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	p, err := proxy.Start(config.Host, transport, proxy.Handlers{Answered: func(answer *http.Response) error {
		if answer.Request.URL.Path != "/version" {
			return nil
		}
		const version = `{"major":"1","minor":"33","gitVersion":"v1.33.0"}`
		answer.Header.Set("Content-Length", strconv.Itoa(len(version)))
		answer.ContentLength, answer.Body = int64(len(version)), io.NopCloser(strings.NewReader(version))
		return nil
	}})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// writeCertificate writes the certificate of the manager's webhooks, which nothing calls.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
}

// awaitManaged waits until the manager has acted on the Cluster that is not paused and on all that it owns.
func (b *bed) awaitManaged(t *testing.T, manager *testbed.Process) {
	t.Helper()
	for _, name := range []string{"Cluster red", "MachineDeployment red", "MachineSet red-set", "Machine red-0", "Machine red-1"} {
		require.Eventually(t, func() bool {
			select {
			case <-manager.Done():
				t.Fatal(manager.EarlyEnd())
			default:
			}
			live := b.estate.listObjects(t, b.Site, "machines")[name]
			if live == nil || len(live.GetFinalizers()) == 0 {
				return false
			}
			observed, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
			return observed == live.GetGeneration()
		}, site.Patience, time.Second, "%s is managed", name)
	}
}

// noteObjects takes what is in the cluster now for what was there.
func (b *bed) noteObjects(t *testing.T) {
	t.Helper()
	for namespace := range b.estate.spaces {
		b.estate.spaces[namespace] = slices.Collect(maps.Values(b.estate.listObjects(t, b.Site, namespace)))
	}
}

// readUIDs returns the UIDs of all objects of the kinds of the estate.
func (b *bed) readUIDs(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for namespace := range b.estate.spaces {
		for name, object := range b.estate.listObjects(t, b.Site, namespace) {
			found[namespace+" "+name] = string(object.GetUID())
		}
	}
	return found
}

// dropFinalizers removes the finalizers of a manager that is gone.
func (b *bed) dropFinalizers(t *testing.T) {
	t.Helper()
	for _, object := range b.estate.listObjects(t, b.Site, "machines") {
		if len(object.GetFinalizers()) > 0 {
			patch := client.MergeFrom(object.DeepCopy())
			object.SetFinalizers(nil)
			require.NoError(t, b.Client.Patch(t.Context(), object, patch), nameOf(object))
		}
	}
}
