package restore_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// veleroBackup writes into a bucket directory what Velero 1.18 writes for a backup (tarball format
// 1.1.0): the metadata and the tarball, and nothing of Holdfast's. Objects are added in the order
// of the map, which is none.
type veleroBackup struct {
	zip *gzip.Writer
	tar *tar.Writer
	n   int
}

func newVeleroBackup(t *testing.T, bucket string, backup *velerov1.Backup) *veleroBackup {
	t.Helper()
	dir := filepath.Join(bucket, "backups", backup.Name)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	meta, err := json.MarshalIndent(backup, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "velero-backup.json"), meta, 0o644))
	file, err := os.Create(filepath.Join(dir, backup.Name+".tar.gz"))
	require.NoError(t, err)
	b := &veleroBackup{zip: gzip.NewWriter(file)}
	b.tar = tar.NewWriter(b.zip)
	b.writeEntry(t, "metadata/version", []byte("1.1.0\n"))
	t.Cleanup(func() { _ = file.Close() })
	return b
}

func (b *veleroBackup) writeEntry(t *testing.T, name string, body []byte) {
	t.Helper()
	require.NoError(t, b.tar.WriteHeader(&tar.Header{Name: name, Size: int64(len(body)), Typeflag: tar.TypeReg, Mode: 0o755, ModTime: time.Now()}))
	_, err := b.tar.Write(body)
	require.NoError(t, err)
}

// addObject stores an object twice, as Velero does.
func (b *veleroBackup) addObject(t *testing.T, gvr schema.GroupVersionResource, obj *unstructured.Unstructured) {
	t.Helper()
	body, err := json.Marshal(obj.Object)
	require.NoError(t, err)
	place := "cluster/" + obj.GetName() + ".json"
	if ns := obj.GetNamespace(); ns != "" {
		place = "namespaces/" + ns + "/" + obj.GetName() + ".json"
	}
	root := "resources/" + gvr.GroupResource().String() + "/"
	b.writeEntry(t, root+place, body)
	b.writeEntry(t, root+gvr.Version+"-preferredversion/"+place, body)
	b.n++
}

func (b *veleroBackup) closeTarball(t *testing.T) {
	t.Helper()
	require.NoError(t, b.tar.Close())
	require.NoError(t, b.zip.Close())
}

// addCluster stores everything of some namespaces and the cluster-scoped objects with a label.
func (b *veleroBackup) addCluster(t *testing.T, config *rest.Config, namespaces []string, selector string) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	lists, err := discoverer.ServerPreferredResources()
	require.NoError(t, err)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, r := range list.APIResources {
			if !backedUp(r.Verbs) || r.Name == "events" {
				continue
			}
			options := metav1.ListOptions{}
			if !r.Namespaced {
				options.LabelSelector = selector
			}
			found, err := client.Resource(gv.WithResource(r.Name)).List(t.Context(), options)
			if apierrors.IsMethodNotSupported(err) {
				continue
			}
			require.NoError(t, err, r.Name)
			for i := range found.Items {
				o := &found.Items[i]
				if !r.Namespaced || slices.Contains(namespaces, o.GetNamespace()) {
					b.addObject(t, gv.WithResource(r.Name), o)
				}
			}
		}
	}
}

func backedUp(verbs []string) bool {
	for _, verb := range []string{"list", "create", "get", "delete"} {
		if !slices.Contains(verbs, verb) {
			return false
		}
	}
	return true
}

// readGzip reads a file of the bucket.
func readGzip(t *testing.T, path ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	require.NoError(t, err)
	out, err := io.ReadAll(zip)
	require.NoError(t, err)
	return string(out)
}
