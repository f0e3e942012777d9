package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
)

func TestBackupHoldsExactlyWhatTheServerListsAtItsRevision(t *testing.T) {
	b := newBed(t)
	_, err := seed.Apply(t.Context(), b.RestConfig(), seed.Options{})
	require.NoError(t, err)
	b.startRunner(t)
	yes := true
	backup := b.awaitFinished(t, b.admitBackup(t, "all", velerov1.BackupSpec{IncludeClusterResources: &yes}, "*"))
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, readResults(t, b, "all"))
	require.NotNil(t, backup.Status.StartTimestamp)
	require.NotNil(t, backup.Status.CompletionTimestamp)
	require.Equal(t, "1.2.0", backup.Status.FormatVersion)

	doc := openManifest(t, b.objectPath("all", "manifest.json.gz"))
	stored := readTarball(t, b.objectPath("all", "all.tar.gz"))
	want := listEverything(t, b.RestConfig(), doc.Revision)
	require.Greater(t, len(want), 300)
	got := map[string]string{}
	events := 0
	for path, body := range stored {
		switch {
		case !strings.HasPrefix(path, "resources/") || strings.Contains(path, "-preferredversion/"):
		case strings.HasPrefix(path, "resources/events/"):
			events++ // not part of the cut
		default:
			got[path] = hashOf(body)
		}
	}
	require.Empty(t, differentKeys(want, got), "every object of the revision is stored")
	require.Empty(t, differentKeys(got, want), "nothing else is stored")
	require.Equal(t, len(want)+events, backup.Status.Progress.ItemsBackedUp)
	require.Equal(t, "1.2.0\n", string(stored["metadata/version"]))
	requireReferences(t, b.objectPath("all", "manifest.json.gz"), stored)
	requireWhole(t, b, "all", len(got)+events)

	files := awaitSwept(t, b.objectPath("all"))
	for _, name := range []string{"velero-backup.json", "all.tar.gz", "all-logs.gz", "all-results.gz", "all-resource-list.json.gz",
		"all-volumeinfo.json.gz", "all-itemoperations.json.gz", "all-volumesnapshots.json.gz", "all-podvolumebackups.json.gz",
		"manifest.json.gz", "holdfast-owner.json"} {
		require.Contains(t, files, name)
	}
	require.Len(t, files, 11, "parts and records are removed: %v", files)
	var committed velerov1.Backup
	readJSON(t, b.objectPath("all", "velero-backup.json"), &committed)
	require.Equal(t, backup.Status, committed.Status)
}

// requireWhole verifies a backup against its own manifest, and against one that is made of its tarball.
func requireWhole(t *testing.T, b *bed, name string, objects int) {
	t.Helper()
	store, err := filestore.Open(filepath.Join(b.bucket, "backups"))
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	own, err := tarball.OpenManifest(t.Context(), store, name)
	require.NoError(t, err)
	made, passed, err := tarball.RebuildManifest(t.Context(), store, manifest.Header{Backup: name}, t.TempDir(), tarball.Limits{})
	require.NoError(t, err)
	require.Zero(t, passed)
	rebuilt, err := manifest.Open(t.Context(), fileRange(made.Path), made.Size)
	require.NoError(t, err)
	for _, m := range []*manifest.Reader{own, rebuilt} {
		found, err := tarball.Verify(t.Context(), store, m, name, t.TempDir(), tarball.Limits{}, func(_, _ int64) {})
		require.NoError(t, err)
		require.Empty(t, found.Faults)
		require.EqualValues(t, objects, found.Objects)
	}
}

func readResults(t *testing.T, b *bed, name string) string {
	t.Helper()
	f, err := os.Open(b.objectPath(name, name+"-results.gz"))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	zr, err := gzip.NewReader(f)
	require.NoError(t, err)
	data, err := io.ReadAll(zr)
	require.NoError(t, err)
	return string(data)
}

func openManifest(t *testing.T, path string) manifest.Header {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	zr, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	var h manifest.Header
	require.NoError(t, json.NewDecoder(zr).Decode(&h), "the manifest is one JSON document")
	require.NotEmpty(t, h.Revision)
	return h
}

// requireReferences checks that the manifest has edges between objects, and that custom resources,
// they alone and all of them, refer to their definitions.
func requireReferences(t *testing.T, path string, stored map[string][]byte) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	m, err := manifest.Open(t.Context(), fileRange(path), info.Size())
	require.NoError(t, err)
	relations := map[string]int{}
	for item, err := range m.Items(t.Context(), manifest.Filter{}) {
		require.NoError(t, err)
		definition := "resources/customresourcedefinitions.apiextensions.k8s.io/cluster/" + item.GroupResource() + ".json"
		_, custom := stored[definition]
		defined := slices.ContainsFunc(item.References, func(r manifest.Reference) bool { return r.Relation == reference.DefinedBy })
		require.Equal(t, custom, defined, item.Path)
		for _, r := range item.References {
			relations[r.Relation]++
		}
	}
	for _, relation := range []string{reference.DefinedBy, reference.Mounts, reference.RunsAs, reference.Grants} {
		require.Positive(t, relations[relation], "%s in %v", relation, relations)
	}
	t.Log(relations)
}

func readTarball(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	zr, err := gzip.NewReader(f)
	require.NoError(t, err)
	out := map[string][]byte{}
	tr := tar.NewReader(zr)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		require.NotContains(t, out, h.Name, "no path twice")
		out[h.Name], err = io.ReadAll(tr)
		require.NoError(t, err)
	}
}

func hashOf(body []byte) string {
	h := sha256.Sum256(body)
	return hex.EncodeToString(h[:])
}

func differentKeys(a, b map[string]string) []string {
	var out []string
	for k, v := range a {
		if b[k] != v {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// listEverything enumerates independently of the runner's lists: decoded with encoding/json, one
// page, at one revision. It returns hashes by tarball path.
func listEverything(t *testing.T, config *rest.Config, revision string) map[string]string {
	t.Helper()
	catalog, err := resource.Discover(t.Context(), config)
	require.NoError(t, err)
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	defer httpClient.CloseIdleConnections()
	out := map[string]string{}
	for _, r := range catalog.Backupable(nil) {
		if r.Name == "events" {
			continue // not part of the cut
		}
		for _, raw := range listObjects(t, httpClient, config.Host, r, revision) {
			addObject(t, out, r, raw)
		}
	}
	return out
}

func listObjects(t *testing.T, c *http.Client, host string, r resource.Resource, revision string) []json.RawMessage {
	t.Helper()
	prefix := "/apis/" + r.Kind.GroupVersion().String()
	if r.Kind.Group == "" {
		prefix = "/api/v1"
	}
	q := url.Values{"resourceVersion": {revision}, "resourceVersionMatch": {"Exact"}}
	resp, err := c.Get(host + prefix + "/" + r.Name + "?" + q.Encode())
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(t, http.StatusOK, resp.StatusCode, r)
	var body struct{ Items []json.RawMessage }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
	return body.Items
}

func addObject(t *testing.T, out map[string]string, r resource.Resource, raw json.RawMessage) {
	t.Helper()
	var o struct {
		APIVersion string
		Metadata   metav1.ObjectMeta
		Status     struct{ Phase string }
	}
	require.NoError(t, json.Unmarshal(raw, &o))
	if o.Metadata.DeletionTimestamp != nil || o.Metadata.Labels["velero.io/exclude-from-backup"] == "true" {
		return
	}
	place := "cluster"
	if o.Metadata.Namespace != "" {
		place = "namespaces/" + o.Metadata.Namespace
	}
	if o.APIVersion == "" {
		head := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, r.Kind.GroupVersion().String(), r.Kind.Kind)
		raw = append([]byte(head), raw[1:]...)
	}
	out["resources/"+r.String()+"/"+place+"/"+o.Metadata.Name+".json"] = hashOf(raw)
}

func listFiles(dir string) (out []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, rel)
		}
		return err
	})
	return out, err
}

// awaitSwept waits until the parts of an ended backup are gone, which are removed after its terminal
// phase is written, and returns the files that stay.
func awaitSwept(t *testing.T, dir string) (files []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		files, err = listFiles(dir)
		return err == nil && !slices.ContainsFunc(files, func(name string) bool { return strings.HasPrefix(name, "parts/") })
	}, time.Minute, 20*time.Millisecond, "the parts go")
	return files
}
