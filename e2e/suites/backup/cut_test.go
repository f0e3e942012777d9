package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/proxy"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/services/backup-runner/app"
)

const shop = "shop"

var counterKind = schema.GroupVersionKind{Group: "cut.example.com", Version: "v1", Kind: "Counter"}

// countersIn creates what the writer counts in: a ConfigMap and a custom resource.
func (b *bed) countersIn(t *testing.T, namespace string) {
	t.Helper()
	b.createObject(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	open := true
	b.createObject(t, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "counters.cut.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: counterKind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "counters", Singular: "counter", Kind: "Counter", ListKind: "CounterList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &open}}}},
		},
	})
	b.createObject(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "counter"}, Data: map[string]string{"value": "0"}})
	custom := newCounter(namespace, 0)
	require.Eventually(t, func() bool { return b.client.Create(t.Context(), custom) == nil }, time.Minute, 50*time.Millisecond)
}

func newCounter(namespace string, value int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"value": int64(value)}}
	u.SetGroupVersionKind(counterKind)
	u.SetNamespace(namespace)
	u.SetName("counter")
	return u
}

// startCounting raises the counter a hundred times a second, first in the ConfigMap, then in the custom
// resource, until stop is called; stop returns the value.
func (b *bed) startCounting(t *testing.T, namespace string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	value := 0
	group.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			value++
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "counter"}}
			patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, value)
			if b.client.Patch(ctx, cm, client.RawPatch("application/merge-patch+json", patch)) != nil {
				return
			}
			patch = fmt.Appendf(nil, `{"value":%d}`, value)
			if b.client.Patch(ctx, newCounter(namespace, 0), client.RawPatch("application/merge-patch+json", patch)) != nil {
				return
			}
			<-ticker.C
		}
	})
	return func() int {
		cancel()
		group.Wait()
		return value
	}
}

func storedCounters(t *testing.T, stored map[string][]byte) (configMap, custom int) {
	t.Helper()
	var cm struct{ Data struct{ Value string } }
	require.NoError(t, json.Unmarshal(stored["resources/configmaps/namespaces/"+shop+"/counter.json"], &cm))
	_, err := fmt.Sscan(cm.Data.Value, &configMap)
	require.NoError(t, err)
	var cr struct{ Value int }
	require.NoError(t, json.Unmarshal(stored["resources/counters.cut.example.com/namespaces/"+shop+"/counter.json"], &cr))
	return configMap, cr.Value
}

func TestCutUnderLoad(t *testing.T) {
	b := newBed(t)
	b.countersIn(t, shop)
	require.NoError(t, seed.Bulk(t.Context(), b.RestConfig(), seed.BulkOptions{Namespace: shop, Count: 3000, Size: 2000}))
	b.startRunner(t, func(c *app.Config) { c.Workers = 1 })
	stop := b.startCounting(t, shop)
	backup := b.awaitFinished(t, b.admitBackup(t, "cut", velerov1.BackupSpec{IncludedNamespaces: []string{shop}}, shop))
	final := stop()
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, readResults(t, b, "cut"))
	configMap, custom := storedCounters(t, readTarball(t, b.objectPath("cut", "cut.tar.gz")))
	require.Contains(t, []int{0, 1}, configMap-custom, "ConfigMap %d, custom resource %d", configMap, custom)
	require.Greater(t, final, configMap, "the writer went on during the backup")
}

// startCompactor starts a proxy in front of the API server that compacts etcd in the middle of paging
// through the ConfigMaps and counts the 410s of the server. It returns the kubeconfig that leads through it.
func (b *bed) startCompactor(t *testing.T, gone *atomic.Int64) (kubeconfig string) {
	t.Helper()
	transport, err := rest.TransportFor(b.RestConfig())
	require.NoError(t, err)
	var pages atomic.Int64
	p, err := proxy.Start(b.RestConfig().Host, transport, proxy.Handlers{
		Before: func(r *http.Request) error {
			if strings.HasSuffix(r.URL.Path, "/configmaps") && r.URL.Query().Has("continue") && pages.Add(1) == 3 {
				b.compactEtcd(t)
			}
			return nil
		},
		Answered: func(r *http.Response) error {
			if r.StatusCode == http.StatusGone {
				gone.Add(1)
			}
			return nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, p.WriteKubeconfig(kubeconfig))
	return kubeconfig
}

// compactEtcd makes etcd forget every revision but the newest.
func (b *bed) compactEtcd(t *testing.T) {
	t.Helper()
	ns := &corev1.ConfigMapList{}
	require.NoError(t, b.client.List(t.Context(), ns, client.Limit(1)))
	body := fmt.Sprintf(`{"revision":"%s","physical":true}`, ns.ResourceVersion)
	resp, err := http.Post(b.EtcdURL()+"/v3/kv/compaction", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", answer)
}

func TestCompactedRevision(t *testing.T) {
	// Without its cache the API server answers old revisions from etcd alone.
	b := newBed(t, func(c *testbed.Config) { c.APIServerArgs = []string{"--watch-cache=false"} })
	b.countersIn(t, shop)
	require.NoError(t, seed.Bulk(t.Context(), b.RestConfig(), seed.BulkOptions{Namespace: shop, Count: 3000, Size: 2000}))
	var gone atomic.Int64
	kubeconfig := b.startCompactor(t, &gone)
	b.startRunner(t, func(c *app.Config) { c.Options.Kubeconfig, c.Workers = kubeconfig, 1 })
	stop := b.startCounting(t, shop)
	backup := b.awaitFinished(t, b.admitBackup(t, "compacted", velerov1.BackupSpec{IncludedNamespaces: []string{shop}}, shop))
	stop()
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, readResults(t, b, "compacted"))
	require.Positive(t, gone.Load(), "the server refused the old revision")
	stored := readTarball(t, b.objectPath("compacted", "compacted.tar.gz"))
	count := 0
	for path := range stored {
		if strings.HasPrefix(path, "resources/configmaps/namespaces/"+shop+"/") {
			count++
		}
	}
	require.Equal(t, 3002, count, "every ConfigMap once: the bulk, the counter, the certificate authority's")
	header := openManifest(t, b.objectPath("compacted", "manifest.json.gz"))
	trailer := readCuts(t, b.objectPath("compacted", "manifest.json.gz"))
	require.NotEmpty(t, trailer, "the manifest says what is of which revision")
	reasons := map[string]bool{}
	for _, c := range trailer {
		require.NotEqual(t, header.Revision, c.Revision)
		reasons[c.Kind+" "+c.Reason] = true
	}
	require.Contains(t, reasons, "v1/ConfigMap compacted")
}

// fileRange reads a manifest in a file.
type fileRange string

func (f fileRange) ReadRange(_ context.Context, off, n int64) (io.ReadCloser, error) {
	data, err := os.ReadFile(string(f))
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data[off : off+n])), nil
}

func readCuts(t *testing.T, path string) []manifest.Cut {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	m, err := manifest.Open(t.Context(), fileRange(path), info.Size())
	require.NoError(t, err)
	return m.Trailer().Cuts
}
