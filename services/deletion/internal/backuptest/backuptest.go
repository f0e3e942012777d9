// Package backuptest puts backups into stores for tests: as Holdfast writes them, with a manifest,
// and as Velero does.
package backuptest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Item is an object to store.
type Item struct {
	Kind      schema.GroupVersionKind
	Resource  string // the plural
	Namespace string
	Name      string
	Labels    map[string]string
	Spec      map[string]any
}

// Object returns an item of the core group, "pods" or another resource.
func Object(resource, kind, namespace, name string) Item {
	return Item{Kind: schema.GroupVersionKind{Version: "v1", Kind: kind}, Resource: resource, Namespace: namespace, Name: name}
}

// Objects returns n items in one namespace, named o-000000 and so on.
func Objects(resource, kind, namespace string, n int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i] = Object(resource, kind, namespace, fmt.Sprintf("o-%06d", i))
	}
	return items
}

// Path returns where the item lies in the tarball.
func (i Item) Path() string {
	scope := "cluster"
	if i.Namespace != "" {
		scope = "namespaces/" + i.Namespace
	}
	return "resources/" + manifest.GroupResource(i.Resource, i.Kind.Group) + "/" + scope + "/" + i.Name + ".json"
}

// Body returns the item as it is stored.
func (i Item) Body() []byte {
	metadata := map[string]any{"name": i.Name}
	if i.Namespace != "" {
		metadata["namespace"] = i.Namespace
	}
	if i.Labels != nil {
		metadata["labels"] = i.Labels
	}
	version, kind := i.Kind.ToAPIVersionAndKind()
	body, err := json.Marshal(map[string]any{"apiVersion": version, "kind": kind, "metadata": metadata, "spec": i.Spec})
	if err != nil {
		panic(err) //nolint:forbidigo // a test gave values that are no JSON
	}
	return body
}

// Write stores the tarball and the manifest of a backup, the gzip members of the tarball small.
func Write(t testing.TB, store objectstore.Store, backup string, items ...Item) {
	t.Helper()
	dir := t.TempDir()
	sealed := sealItems(t, dir, items)
	ref := assembly.PartRef{Key: "backups/" + backup + "/parts/0", Size: sealed.Data.Size, SHA256: sealed.Data.SHA256}
	ref.SidecarKey = layout.Sidecar(ref.Key)
	plan := assembly.Plan{Backup: backup, UID: "uid-" + backup, ModTime: time.Unix(1, 0), Parts: []assembly.PartRef{ref}}
	uploadPart(t, store, ref.Key, sealed)
	_, err := assembly.Compose(t.Context(), store, plan)
	require.NoError(t, err)
	merged, err := assembly.Merge(t.Context(), store, plan, dir)
	require.NoError(t, err)
	_, err = assembly.Create(t.Context(), store, layout.BackupManifest(backup), merged.Manifest)
	require.NoError(t, err)
	require.NoError(t, store.Delete(t.Context(), ref.Key))
	require.NoError(t, store.Delete(t.Context(), ref.SidecarKey))
}

// sealItems writes a part into dir.
func sealItems(t testing.TB, dir string, items []Item) *part.Sealed {
	t.Helper()
	w, err := part.NewWriter(part.Config{Dir: dir, MemberBytes: 16 << 10})
	require.NoError(t, err)
	for _, i := range items {
		require.NoError(t, w.Add(part.Item{
			GVK: i.Kind, Resource: i.Resource, Preferred: true, HasTypeMeta: true, Raw: i.Body(),
			Meta: &objmeta.Meta{Name: i.Name, Namespace: i.Namespace, UID: "uid-" + i.Namespace + i.Name, Labels: objmeta.FromMap(i.Labels)},
		}))
	}
	sealed, err := w.Seal()
	require.NoError(t, err)
	return sealed
}

func uploadPart(t testing.TB, store objectstore.Store, key string, sealed *part.Sealed) {
	t.Helper()
	for key, f := range map[string]part.File{key: sealed.Data, layout.Sidecar(key): sealed.Sidecar} {
		_, err := assembly.Create(t.Context(), store, key, f)
		require.NoError(t, err)
	}
}

// WriteVelero stores a tarball as Velero 1.18 writes it, each object twice and without a manifest.
// more are further entries by name, each a name and a body.
func WriteVelero(t testing.TB, store objectstore.Store, backup string, items []Item, more ...[2]string) {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	add := func(name string, body []byte) {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: name, Size: int64(len(body)), Typeflag: tar.TypeReg, Mode: 0o755}))
		_, err := archive.Write(body)
		require.NoError(t, err)
	}
	add("metadata/version", []byte("1.1.0\n"))
	for _, i := range items {
		resource := "resources/" + manifest.GroupResource(i.Resource, i.Kind.Group)
		add(i.Path(), i.Body())
		add(resource+"/"+i.Kind.Version+"-preferredversion"+i.Path()[len(resource):], i.Body())
	}
	for _, entry := range more {
		add(entry[0], []byte(entry[1]))
	}
	require.NoError(t, archive.Close())
	require.NoError(t, zipped.Close())
	require.NoError(t, objectstore.PutBytes(t.Context(), store, layout.BackupTarball(backup), out.Bytes()))
}
