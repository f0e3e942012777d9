package tarball_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is one tar entry of a test tarball.
type entry struct {
	name, body string
	kind       byte
}

func objectJSON(apiVersion, kind, ns, name, data string) string {
	meta := fmt.Sprintf(`{"name":%q,"uid":"uid-%s%s","labels":{"l":"v"}}`, name, ns, name)
	if ns != "" {
		meta = fmt.Sprintf(`{"name":%q,"namespace":%q,"uid":"uid-%s%s","labels":{"l":"v"}}`, name, ns, ns, name)
	}
	return fmt.Sprintf(`{"apiVersion":%q,"data":%q,"kind":%q,"metadata":%s}`, apiVersion, data, kind, meta)
}

// bothVersionEntries returns the two entries Velero's format 1.1.0 has for every object.
func bothVersionEntries(resource, version, scope, name, body string) []entry {
	return []entry{
		{name: "resources/" + resource + "/" + scope + "/" + name + ".json", body: body},
		{name: "resources/" + resource + "/" + version + "-preferredversion/" + scope + "/" + name + ".json", body: body},
	}
}

// veleroTarball is a tarball as Velero 1.18 writes it: one gzip stream of archive/tar's making.
func veleroTarball() []entry {
	all := []entry{{name: "metadata/version", body: "1.1.0\n"}}
	all = append(all, bothVersionEntries("namespaces", "v1", "cluster", "shop", objectJSON("v1", "Namespace", "", "shop", ""))...)
	for i := range 20 {
		name := fmt.Sprintf("c-%02d-%s", i, strings.Repeat("long", i*5))
		all = append(all, bothVersionEntries("configmaps", "v1", "namespaces/shop", name, objectJSON("v1", "ConfigMap", "shop", name, strings.Repeat("x", i*9000)))...)
	}
	all = append(all, bothVersionEntries("deployments.apps", "v1", "namespaces/shop", "web", objectJSON("apps/v1", "Deployment", "shop", "web", ""))...)
	all = append(all, entry{name: "resources/deployments.apps/v1beta1/namespaces/shop/web.json", body: objectJSON("apps/v1beta1", "Deployment", "shop", "web", "")})
	return append(all, bothVersionEntries("widgets.example.com", "v2", "cluster", "system:odd", objectJSON("example.com/v2", "Widget", "", "system:odd", ""))...)
}

func packTarball(t testing.TB, entries []entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Size: int64(len(e.body)), Typeflag: e.kind, Mode: 0o755, ModTime: time.Unix(1, 0)}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if e.kind == tar.TypeSymlink {
			h.Linkname, h.Size = "/etc/passwd", 0
		}
		require.NoError(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := io.WriteString(w, e.body)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	return out.Bytes()
}

func storeTarball(t *testing.T, data []byte) objectstore.Store {
	t.Helper()
	store := memstore.New()
	require.NoError(t, objectstore.CreateBytes(t.Context(), store, layout.BackupTarball("b"), data))
	return store
}

func readAll(t *testing.T, src tarball.Source) map[string]string {
	t.Helper()
	all := map[string]string{}
	for it, err := range src.Items(t.Context()) {
		require.NoError(t, err)
		body, err := src.Read(t.Context(), it)
		require.NoError(t, err)
		require.NotContains(t, all, it.Path)
		all[it.Path] = string(body)
	}
	return all
}

// unversionedBodies is what a restore should find in the entries.
func unversionedBodies(entries []entry) map[string]string {
	want := map[string]string{}
	for _, e := range entries {
		if p, err := tarball.ParsePath(e.name); err == nil && p.Version == "" {
			want[e.name] = e.body
		}
	}
	return want
}

func TestVeleroTarball(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, err := tarball.Open(t.Context(), storeTarball(t, packTarball(t, veleroTarball())), "b", dir, tarball.Limits{})
	require.NoError(t, err)
	require.True(t, src.Header().Foreign)
	require.Equal(t, unversionedBodies(veleroTarball()), readAll(t, src))
	for it, err := range src.Items(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, map[string]string{"l": "v"}, it.Labels)
		require.Equal(t, "uid-"+it.Namespace+it.Name, it.UID)
		if it.Kind == "Deployment" {
			require.Equal(t, []string{"apps", "v1", "deployments", "shop", "web"}, []string{it.Group, it.Version, it.Resource, it.Namespace, it.Name})
		}
	}
	_, n := src.Problems()
	require.Zero(t, n)
	require.NoError(t, src.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// The order of a restore depends on references, which a tarball of Velero's has no list of: they
// are found on the one pass.
func TestReferencesOfAVeleroTarball(t *testing.T) {
	t.Parallel()
	claim := `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c","namespace":"shop"},"spec":{"volumeName":"v"}}`
	src, err := tarball.Open(t.Context(), storeTarball(t, packTarball(t, bothVersionEntries("persistentvolumeclaims", "v1", "namespaces/shop", "c", claim))), "b", t.TempDir(), tarball.Limits{})
	require.NoError(t, err)
	defer func() { require.NoError(t, src.Close()) }()
	for it, err := range src.Items(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, []manifest.Reference{{Kind: "PersistentVolume", Name: "v", Relation: reference.Binds}}, it.References)
	}
}

func TestHostileAndForeignEntriesArePassedOver(t *testing.T) {
	t.Parallel()
	good := bothVersionEntries("pods", "v1", "namespaces/a", "p", objectJSON("v1", "Pod", "a", "p", ""))
	bad := []entry{
		{name: "../../etc/passwd", body: "x"}, {name: "/resources/pods/namespaces/a/abs.json", body: "{}"}, {name: "resources/pods/namespaces/../../x.json", body: "{}"},
		{name: "resources/pods/namespaces/a/link.json", kind: tar.TypeSymlink}, {name: "resources/pods/namespaces/a/fifo.json", kind: tar.TypeFifo},
		{name: "resources/pods/oddscope/a/p.json", body: "{}"}, {name: "resources/pods/namespaces/a/p.txt", body: "{}"}, {name: "other/file", body: "x"},
		{name: "resources/pods/namespaces/a/huge.json", body: strings.Repeat("z", 5000)},
		{name: "resources/pods/namespaces/a/broken.json", body: `{"apiVersion":"v1"`}, {name: "resources/pods/namespaces/a/array.json", body: `[]`},
		{name: "resources/pods/namespaces/a/untyped.json", body: `{"metadata":{"name":"untyped","namespace":"a"}}`},
		{name: "resources/pods/namespaces/a/other.json", body: objectJSON("v1", "Pod", "b", "other", "")},
		{name: "resources/pods/namespaces/a/group.json", body: objectJSON("apps/v1", "Pod", "a", "group", "")},
		{name: "resources/pods/namespaces/a/deep.json", body: objectJSON("a/b/c", "Pod", "a", "deep", "")},
		{name: "resources/pods/namespaces/a/meta.json", body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":7}}`},
	}
	entries := append([]entry{{name: "resources/pods/", kind: tar.TypeDir}}, bad...)
	entries = append(entries, good...)
	src, err := tarball.FromTarball(t.Context(), storeTarball(t, packTarball(t, entries)), "b", t.TempDir(), tarball.Limits{EntryBytes: 4000})
	require.NoError(t, err)
	require.Equal(t, unversionedBodies(good), readAll(t, src))
	list, n := src.Problems()
	require.Equal(t, len(bad), n)
	for i, p := range list {
		require.Equal(t, bad[i].name, p.Path)
		require.True(t, errors.Is(p.Err, tarball.ErrPath) || errors.Is(p.Err, tarball.ErrCorrupt) || errors.Is(p.Err, tarball.ErrTooLarge), p.Err)
	}
	require.NoError(t, src.Close())
}

func TestBombs(t *testing.T) {
	t.Parallel()
	entries := []entry{{name: "resources/pods/namespaces/a/first.json", body: objectJSON("v1", "Pod", "a", "first", "")}}
	for i := range 50 {
		entries = append(entries, entry{name: fmt.Sprintf("resources/pods/namespaces/a/%d.json", i), body: strings.Repeat("0", 1<<20)})
	}
	data := packTarball(t, entries)
	require.Less(t, len(data), 1<<20)
	dir := t.TempDir()
	_, err := tarball.FromTarball(t.Context(), storeTarball(t, data), "b", dir, tarball.Limits{TotalBytes: 10 << 20})
	require.ErrorIs(t, err, tarball.ErrTooLarge)
	require.ErrorContains(t, err, "resources/pods/namespaces/a/")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestEveryTruncationIsAnErrorNamingAnEntry(t *testing.T) {
	t.Parallel()
	data := packTarball(t, veleroTarball()[:11])
	v := tarball.Visitor{Entry: func(e tarball.Entry) error { _, err := io.Copy(io.Discard, e.Body); return err }}
	require.NoError(t, tarball.List(t.Context(), bytes.NewReader(data), tarball.Limits{}, v))
	named := 0
	for n := range len(data) {
		err := tarball.List(t.Context(), bytes.NewReader(data[:n]), tarball.Limits{}, v)
		require.ErrorIs(t, err, tarball.ErrCorrupt, "%d of %d bytes", n, len(data))
		if strings.Contains(err.Error(), "resources/") {
			named++
		}
	}
	require.Greater(t, named, len(data)/2)
	flipped := bytes.Clone(data)
	flipped[len(data)-6] ^= 1 // gzip's checksum
	require.ErrorIs(t, tarball.List(t.Context(), bytes.NewReader(flipped), tarball.Limits{}, v), tarball.ErrCorrupt)
}

func TestListGivesBackTheVisitorsError(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	var version string
	err := tarball.List(t.Context(), bytes.NewReader(packTarball(t, veleroTarball())), tarball.Limits{}, tarball.Visitor{
		Entry: func(tarball.Entry) error { return stop }, Version: func(v string) { version = v },
	})
	require.ErrorIs(t, err, stop)
	require.Equal(t, "1.1.0", version)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	require.ErrorIs(t, tarball.List(ctx, bytes.NewReader(packTarball(t, veleroTarball())), tarball.Limits{}, tarball.Visitor{}), stop)
}

// holdfastBackup publishes a backup of our own and returns the bodies by path.
func holdfastBackup(t *testing.T, store objectstore.Store, items int) map[string]string {
	t.Helper()
	dir, want := t.TempDir(), map[string]string{}
	plan := assembly.Plan{Backup: "b", UID: "u", ModTime: time.Unix(1, 0)}
	for p := range 3 {
		w, err := part.NewWriter(part.Config{Dir: dir, MemberBytes: 16 << 10})
		require.NoError(t, err)
		for i := range items / 3 {
			name := fmt.Sprintf("p-%d-%04d", p, i)
			ns := "x-preferredversion"
			body := objectJSON("v1", "Pod", ns, name, strings.Repeat("y", (i%7)*9000))
			require.NoError(t, w.Add(part.Item{
				GVK: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: "pods", Preferred: true, HasTypeMeta: true, Raw: []byte(body),
				Meta: &objmeta.Meta{Name: name, Namespace: ns, UID: name},
			}))
			want["resources/pods/namespaces/"+ns+"/"+name+".json"] = body
		}
		s, err := w.Seal()
		require.NoError(t, err)
		ref := assembly.PartRef{Key: fmt.Sprintf("backups/b/parts/%d", p), Size: s.Data.Size, SHA256: s.Data.SHA256}
		ref.SidecarKey = ref.Key + ".sidecar"
		for key, f := range map[string]part.File{ref.Key: s.Data, ref.SidecarKey: s.Sidecar} {
			_, err := assembly.Create(t.Context(), store, key, f)
			require.NoError(t, err)
		}
		plan.Parts = append(plan.Parts, ref)
	}
	_, err := assembly.Compose(t.Context(), store, plan)
	require.NoError(t, err)
	merged, err := assembly.Merge(t.Context(), store, plan, dir)
	require.NoError(t, err)
	for key, f := range merged.Files("b") {
		_, err := assembly.Create(t.Context(), store, key, f)
		require.NoError(t, err)
	}
	return want
}

// countingReader counts range reads and fails on request.
type countingReader struct {
	objectstore.Store
	reads atomic.Int64
	fail  atomic.Bool
}

var errBroken = errors.New("connection reset")

func (c *countingReader) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	c.reads.Add(1)
	if c.fail.Load() {
		return nil, errBroken
	}
	return c.Store.GetRange(ctx, key, off, n)
}

func TestOwnBackupIsReadByRange(t *testing.T) {
	t.Parallel()
	store := &countingReader{Store: memstore.New()}
	want := holdfastBackup(t, store, 90)
	dir := t.TempDir()
	src, err := tarball.Open(t.Context(), store, "b", dir, tarball.Limits{})
	require.NoError(t, err)
	require.False(t, src.Header().Foreign)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is copied")
	require.Equal(t, want, readAll(t, src))
	members := map[int64]bool{}
	for it, err := range src.Items(t.Context()) {
		require.NoError(t, err)
		members[it.Offset] = true
	}
	before := store.reads.Load()
	require.LessOrEqual(t, before, int64(len(members)+6), "each gzip member is read once")
	require.NoError(t, src.Close())
}

func TestConcurrentReadsWithATinyCache(t *testing.T) {
	t.Parallel()
	store := &countingReader{Store: memstore.New()}
	want := holdfastBackup(t, store, 60)
	src, err := tarball.FromManifest(t.Context(), store, "b", tarball.Limits{CacheBytes: 1})
	require.NoError(t, err)
	var items []manifest.Item
	for it, err := range src.Items(t.Context()) {
		require.NoError(t, err)
		items = append(items, it)
	}
	store.fail.Store(true)
	_, err = src.Read(t.Context(), items[0])
	require.ErrorIs(t, err, errBroken)
	require.NotErrorIs(t, err, tarball.ErrCorrupt, "a failed read says nothing about the tarball")
	store.fail.Store(false)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range items {
				it := items[(i*(g+1))%len(items)]
				body, err := src.Read(t.Context(), it)
				if err != nil || want[it.Path] != string(body) {
					t.Errorf("%s: %v", it.Path, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestManifestThatDoesNotFit(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	want := holdfastBackup(t, store, 30)
	src, err := tarball.FromManifest(t.Context(), store, "b", tarball.Limits{})
	require.NoError(t, err)
	var some manifest.Item
	for it, err := range src.Items(t.Context()) {
		require.NoError(t, err)
		some = it
		break
	}
	for name, spoil := range map[string]func(*manifest.Item){
		"hash": func(i *manifest.Item) { sum := sha256.Sum256(nil); i.SHA256 = hex.EncodeToString(sum[:]) }, "size": func(i *manifest.Item) { i.Size++ },
		"path": func(i *manifest.Item) { i.Path += "x" }, "length": func(i *manifest.Item) { i.Length = 0 }, "huge": func(i *manifest.Item) { i.Length = 1 << 40 },
	} {
		it := some
		spoil(&it)
		_, err := src.Read(t.Context(), it)
		require.ErrorIs(t, err, tarball.ErrMismatch, name)
	}
	it := some
	it.Offset++
	_, err = src.Read(t.Context(), it)
	require.ErrorIs(t, err, tarball.ErrCorrupt)

	// Velero's finalizer writes the tarball anew: the manifest's offsets are worth nothing then
	require.NoError(t, objectstore.PutBytes(t.Context(), store, layout.BackupTarball("b"), packTarball(t, veleroTarball())))
	_, err = tarball.FromManifest(t.Context(), store, "b", tarball.Limits{})
	require.ErrorIs(t, err, tarball.ErrMismatch)
	again, err := tarball.Open(t.Context(), store, "b", t.TempDir(), tarball.Limits{})
	require.NoError(t, err)
	require.Equal(t, unversionedBodies(veleroTarball()), readAll(t, again))
	require.NotEmpty(t, want)
	require.NoError(t, again.Close())

	require.NoError(t, objectstore.PutBytes(t.Context(), store, layout.BackupManifest("b"), []byte("not a manifest")))
	again, err = tarball.Open(t.Context(), store, "b", t.TempDir(), tarball.Limits{})
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestOwnTarballWithoutItsManifest(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	want := holdfastBackup(t, store, 30)
	require.NoError(t, store.Delete(t.Context(), layout.BackupManifest("b")))
	src, err := tarball.Open(t.Context(), store, "b", t.TempDir(), tarball.Limits{})
	require.NoError(t, err)
	require.Equal(t, want, readAll(t, src))
	require.NoError(t, src.Close())
	data, err := objectstore.ReadAll(t.Context(), store, layout.BackupTarball("b"), 1<<30)
	require.NoError(t, err)
	trailer, err := part.Trailer()
	require.NoError(t, err)
	// cut where a gzip member ends: only tar's missing end tells
	require.NoError(t, objectstore.PutBytes(t.Context(), store, layout.BackupTarball("b"), data[:len(data)-len(trailer)]))
	_, err = tarball.Open(t.Context(), store, "b", t.TempDir(), tarball.Limits{})
	require.ErrorIs(t, err, tarball.ErrCorrupt)
}

func TestNoTarball(t *testing.T) {
	t.Parallel()
	_, err := tarball.Open(t.Context(), memstore.New(), "b", t.TempDir(), tarball.Limits{})
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	_, err = tarball.Open(t.Context(), memstore.New(), "b", t.TempDir()+"/missing", tarball.Limits{})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzList feeds tar streams of any kind: no panic, and no entry whose path would leave a
// directory.
func FuzzList(f *testing.F) {
	for _, entries := range [][]entry{veleroTarball()[:4], {{name: "../x", body: "y"}}, {{name: "resources/a/cluster/b.json", body: "{}"}}} {
		zip, err := gzip.NewReader(bytes.NewReader(packTarball(f, entries)))
		require.NoError(f, err)
		plain, err := io.ReadAll(zip)
		require.NoError(f, err)
		f.Add(plain)
	}
	f.Fuzz(func(t *testing.T, plain []byte) {
		var out bytes.Buffer
		zip := gzip.NewWriter(&out)
		_, err := zip.Write(plain)
		require.NoError(t, err)
		require.NoError(t, zip.Close())
		_ = tarball.List(t.Context(), &out, tarball.Limits{EntryBytes: 1 << 16, TotalBytes: 1 << 20}, tarball.Visitor{Entry: func(e tarball.Entry) error {
			require.NotEmpty(t, e.Name)
			for _, p := range strings.Split(e.TarName, "/") {
				require.NotContains(t, []string{"", ".", ".."}, p)
			}
			_, err := io.Copy(io.Discard, e.Body)
			return err
		}})
	})
}
