package assembly_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

var startTime = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// builder writes parts into a store and keeps the plan.
type builder struct {
	t     *testing.T
	store objectstore.Store
	plan  assembly.Plan
	dir   string
}

func newBuilder(t *testing.T) *builder {
	t.Helper()
	return &builder{
		t: t, store: memstore.New(), dir: t.TempDir(),
		plan: assembly.Plan{Backup: "b", UID: "backup-uid", ModTime: startTime, LogValue: "velero/b", Header: manifest.Header{Revision: "77"}},
	}
}

func newItem(group, kind, resource, ns, name, data string) part.Item {
	raw := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q},"data":%q}`, name, ns, data)
	return part.Item{
		GVK: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, Resource: resource, Preferred: true, Raw: []byte(raw),
		Meta: &objmeta.Meta{Name: name, Namespace: ns, UID: "uid-" + ns + "-" + name},
	}
}

func newPodItem(ns, name, data string) part.Item { return newItem("", "Pod", "pods", ns, name, data) }

func (b *builder) uploadPart(fill func(w *part.Writer)) {
	b.t.Helper()
	w, err := part.NewWriter(part.Config{Dir: b.dir, MemberBytes: 8192, ModTime: startTime})
	require.NoError(b.t, err)
	fill(w)
	s, err := w.Seal()
	require.NoError(b.t, err)
	ref := assembly.PartRef{Key: fmt.Sprintf("backups/b/parts/u/%d", len(b.plan.Parts)), Size: s.Data.Size, SHA256: s.Data.SHA256, SidecarSHA256: s.Sidecar.SHA256}
	ref.SidecarKey = layout.Sidecar(ref.Key)
	if s.Data.Size > 0 {
		b.uploadFile(ref.Key, s.Data)
	}
	b.uploadFile(ref.SidecarKey, s.Sidecar)
	b.plan.Parts = append(b.plan.Parts, ref)
}

func (b *builder) uploadFile(key string, f part.File) {
	b.t.Helper()
	data, err := os.ReadFile(f.Path)
	require.NoError(b.t, err)
	require.NoError(b.t, objectstore.CreateBytes(b.t.Context(), b.store, key, data))
	require.NoError(b.t, os.Remove(f.Path))
}

func (b *builder) publishParts() *assembly.Merged {
	b.t.Helper()
	r, err := assembly.Compose(b.t.Context(), b.store, b.plan)
	require.NoError(b.t, err)
	require.False(b.t, r.Adopted)
	m, err := assembly.Merge(b.t.Context(), b.store, b.plan, b.dir)
	require.NoError(b.t, err)
	for key, f := range m.Files("b") {
		adopted, err := assembly.Create(b.t.Context(), b.store, key, f)
		require.NoError(b.t, err)
		require.False(b.t, adopted)
	}
	return m
}

func (b *builder) readObject(key string) []byte {
	b.t.Helper()
	data, err := objectstore.ReadAll(b.t.Context(), b.store, key, 1<<30)
	require.NoError(b.t, err)
	return data
}

func (b *builder) readUnzipped(key string) string {
	b.t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(b.readObject(key)))
	require.NoError(b.t, err)
	text, err := io.ReadAll(zip)
	require.NoError(b.t, err)
	return string(text)
}

type ranges struct {
	objectstore.Reader
	key string
}

func (r ranges) ReadRange(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	return r.GetRange(ctx, r.key, off, n)
}

func (b *builder) openManifest() *manifest.Reader {
	b.t.Helper()
	key := layout.BackupManifest("b")
	info, err := b.store.Stat(b.t.Context(), key)
	require.NoError(b.t, err)
	m, err := manifest.Open(b.t.Context(), ranges{b.store, key}, info.Size)
	require.NoError(b.t, err)
	return m
}

// readTarball reads the tarball as an extractor does: the last entry of a path counts.
func (b *builder) readTarball() (bodies map[string]string, order []string) {
	b.t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(b.readObject(layout.BackupTarball("b"))))
	require.NoError(b.t, err)
	bodies = map[string]string{}
	r := tar.NewReader(zip)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return bodies, order
		}
		require.NoError(b.t, err)
		body, err := io.ReadAll(r)
		require.NoError(b.t, err)
		bodies[h.Name] = string(body)
		order = append(order, h.Name)
	}
}

func TestPublishedFilesAgree(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.plan.Cuts = []manifest.Cut{{Kind: "v1/Pod", Revision: "78", From: "a/x", Reason: "compacted"}}
	b.uploadPart(func(w *part.Writer) {
		for i := range 30 {
			require.NoError(t, w.Add(newPodItem("b", fmt.Sprintf("p-%02d", i), strings.Repeat("x", i*400))))
		}
		require.NoError(t, w.Fail(newPodItem("b", "broken", "")))
	})
	b.uploadPart(func(w *part.Writer) {
		require.NoError(t, w.Add(newItem("", "Node", "nodes", "", "n1", "")))
		require.NoError(t, w.Add(newItem("apps", "Deployment", "deployments", "a", "d", "")))
		require.NoError(t, w.Add(newItem("", "Namespace", "namespaces", "", "a", "")))
		require.NoError(t, w.Add(newPodItem("b-1", "z", "")))
	})
	b.uploadPart(func(*part.Writer) {}) // a part without items
	m := b.publishParts()
	require.Equal(t, [2]int{34, 1}, [2]int{m.Items, m.Failed})

	var list map[string][]string
	require.NoError(t, json.Unmarshal([]byte(b.readUnzipped(layout.BackupResourceList("b"))), &list))
	require.Equal(t, []string{"a/d"}, list["apps/v1/Deployment"])
	require.Equal(t, []string{"n1"}, list["v1/Node"])
	require.Len(t, list["v1/Pod"], 32)
	require.IsIncreasing(t, list["v1/Pod"])
	require.Contains(t, list["v1/Pod"], "b/broken")

	bodies, order := b.readTarball()
	require.Equal(t, "metadata/version", order[0])
	require.Equal(t, "1.2.0\n", bodies["metadata/version"])
	require.Len(t, order, 1+2*34)
	items := map[string]manifest.Item{}
	r := b.openManifest()
	for it, err := range r.Items(t.Context(), manifest.Filter{}) {
		require.NoError(t, err)
		items[it.Path] = it
	}
	require.Len(t, items, 34)
	for path, it := range items {
		require.EqualValues(t, it.Size, len(bodies[path]))
		member := b.readObject(layout.BackupTarball("b"))[it.Offset : it.Offset+it.Length]
		zip, err := gzip.NewReader(bytes.NewReader(member))
		require.NoError(t, err)
		text, err := io.ReadAll(zip)
		require.NoError(t, err)
		require.Contains(t, string(text), bodies[path])
	}
	require.Equal(t, b.plan.Cuts, r.Trailer().Cuts)
	require.EqualValues(t, len(b.readObject(layout.BackupTarball("b"))), r.Trailer().TarballSize)
	require.Equal(t, manifest.Header{FormatVersion: "1.2.0", Backup: "b", UID: "backup-uid", Revision: "77", StartTime: startTime}, r.Header())
}

func TestGNUTarReadsTheTarball(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	for p := range 3 {
		b.uploadPart(func(w *part.Writer) {
			for i := range 20 {
				require.NoError(t, w.Add(newPodItem("ns", fmt.Sprint(strings.Repeat("n", 3+12*i+p), p), strings.Repeat("z", i*2000))))
			}
		})
	}
	b.publishParts()
	dir := t.TempDir()
	file := filepath.Join(dir, "b.tar.gz")
	require.NoError(t, os.WriteFile(file, b.readObject(layout.BackupTarball("b")), 0o600))
	out, err := exec.CommandContext(t.Context(), "tar", "-xvzf", file, "-C", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	bodies, order := b.readTarball()
	require.Equal(t, order, strings.Fields(string(out)), "no complaints, no other entries")
	for path, want := range bodies {
		body, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		require.NoError(t, err)
		require.Equal(t, want, string(body))
	}
}

func TestTheLaterPartCounts(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.uploadPart(func(w *part.Writer) {
		require.NoError(t, w.Add(newPodItem("ns", "a", "old")))
		require.NoError(t, w.Add(newPodItem("ns", "b", "kept")))
	})
	b.uploadPart(func(w *part.Writer) {
		require.NoError(t, w.Add(newPodItem("ns", "a", "new")))
		require.NoError(t, w.Fail(newPodItem("ns", "b", "")))
	})
	m := b.publishParts()
	require.Equal(t, [2]int{2, 0}, [2]int{m.Items, m.Failed})
	bodies, _ := b.readTarball()
	r := b.openManifest()
	for it, err := range r.Items(t.Context(), manifest.Filter{}) {
		require.NoError(t, err)
		require.EqualValues(t, it.Size, len(bodies[it.Path]))
		require.Equal(t, it.Name == "a", it.Offset >= b.plan.Parts[0].Size)
	}
	require.Contains(t, bodies["resources/pods/namespaces/ns/a.json"], "new")
	require.JSONEq(t, `{"v1/Pod":["ns/a","ns/b"]}`, b.readUnzipped(layout.BackupResourceList("b")))
}

func TestLogAndResults(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	note := func(second int, level joblog.Level, text string, scoped bool, ns string) joblog.Entry {
		return joblog.Entry{Time: startTime.Add(time.Duration(second) * time.Second), Level: level, Message: text, Scoped: scoped, Namespace: ns, Resource: "pods", Name: "p"}
	}
	b.uploadPart(func(w *part.Writer) {
		require.NoError(t, w.Note(note(1, joblog.Error, "one", true, "x")))
		require.NoError(t, w.Note(note(3, joblog.Error, "three", true, "x")))
		require.NoError(t, w.Note(note(5, joblog.Warning, "five", true, "")))
	})
	b.uploadPart(func(w *part.Writer) {
		require.NoError(t, w.Note(note(2, joblog.Error, "two", true, "w")))
		require.NoError(t, w.Note(note(4, joblog.Info, "four", false, "")))
	})
	b.plan.Notes = []joblog.Entry{note(0, joblog.Warning, "zero", false, ""), note(6, joblog.Error, "six", true, "x"), note(7, joblog.Error, "seven", false, "")}
	m := b.publishParts()
	require.Equal(t, [2]int{2, 5}, [2]int{m.Warnings, m.Errors})
	log := b.readUnzipped(layout.BackupLog("b"))
	var order []string
	for line := range strings.Lines(log) {
		require.Contains(t, line, " backup=velero/b")
		_, rest, _ := strings.Cut(line, " msg=")
		word, _, _ := strings.Cut(rest, " ")
		order = append(order, word)
	}
	require.Equal(t, []string{"zero", "one", "two", "three", "four", "five", "six", "seven"}, order)
	var results joblog.Results
	require.NoError(t, json.Unmarshal([]byte(b.readUnzipped(layout.BackupResults("b"))), &results))
	text := func(words ...string) []string {
		for i, w := range words {
			words[i] = " resource: /pods name: /p message: /" + w
		}
		return words
	}
	require.Equal(t, joblog.Results{
		Warnings: joblog.Result{Velero: text("zero"), Cluster: text("five")},
		Errors:   joblog.Result{Velero: text("seven"), Namespaces: map[string][]string{"w": text("two"), "x": text("one", "three", "six")}},
	}, results)
}

// addResult adds the only entry of its place.
func addResult(r *joblog.Results, e *joblog.Entry) {
	half, text := &r.Warnings, []string{joblog.ResultMessage(e)}
	if e.Level == joblog.Error {
		half = &r.Errors
	}
	switch {
	case !e.Scoped:
		half.Velero = text
	case e.Namespace == "":
		half.Cluster = text
	default:
		half.Namespaces = map[string][]string{e.Namespace: text}
	}
}

func TestResultsOfEveryShape(t *testing.T) {
	t.Parallel()
	for shape := range 64 {
		b := newBuilder(t)
		var want joblog.Results
		for bit, e := range []joblog.Entry{
			{Level: joblog.Warning, Message: "a"}, {Level: joblog.Warning, Message: "b", Scoped: true}, {Level: joblog.Warning, Message: "c", Scoped: true, Namespace: "n"},
			{Level: joblog.Error, Message: "d"}, {Level: joblog.Error, Message: "e", Scoped: true}, {Level: joblog.Error, Message: "f", Scoped: true, Namespace: "n"},
		} {
			if shape&(1<<bit) != 0 {
				b.plan.Notes = append(b.plan.Notes, e)
				addResult(&want, &e)
			}
		}
		b.publishParts()
		var got joblog.Results
		require.NoError(t, json.Unmarshal([]byte(b.readUnzipped(layout.BackupResults("b"))), &got), "shape %b", shape)
		require.Equal(t, want, got)
	}
}

func TestSecondOwnerAdoptsWhatIsThere(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.uploadPart(func(w *part.Writer) { require.NoError(t, w.Add(newPodItem("ns", "a", "x"))) })
	b.plan.Notes = []joblog.Entry{{Level: joblog.Warning, Message: "w"}}
	b.publishParts()
	r, err := assembly.Compose(t.Context(), b.store, b.plan)
	require.NoError(t, err)
	require.True(t, r.Adopted)
	again, err := assembly.Merge(t.Context(), b.store, b.plan, b.dir)
	require.NoError(t, err)
	for key, f := range again.Files("b") {
		adopted, err := assembly.Create(t.Context(), b.store, key, f)
		require.NoError(t, err)
		require.True(t, adopted)
	}
	other := b.plan
	other.ModTime = startTime.Add(time.Second)
	_, err = assembly.Compose(t.Context(), b.store, other)
	require.ErrorIs(t, err, assembly.ErrDiffers)
	_, err = assembly.Create(t.Context(), b.store, layout.BackupLog("b"), again.Results)
	require.ErrorIs(t, err, assembly.ErrDiffers)
}

func TestDamagedAndMissingSidecars(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	for i := range 3 {
		b.uploadPart(func(w *part.Writer) { require.NoError(t, w.Add(newPodItem("ns", fmt.Sprint(i), "x"))) })
	}
	key := b.plan.Parts[1].SidecarKey
	whole := b.readObject(key)
	check := func(want error) {
		t.Helper()
		_, err := assembly.Merge(t.Context(), b.store, b.plan, b.dir)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, key)
		left, err := os.ReadDir(b.dir)
		require.NoError(t, err)
		require.Empty(t, left, "a failed merge leaves no files")
	}
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, key, whole[:len(whole)-9]))
	check(part.ErrCorrupt)
	b.plan.Parts[1].SidecarSHA256 = ""
	check(part.ErrCorrupt)
	require.NoError(t, b.store.Delete(t.Context(), key))
	check(objectstore.ErrNotFound)
	_, err := assembly.Merge(t.Context(), b.store, b.plan, b.dir+"/missing")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestMergeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.uploadPart(func(w *part.Writer) { require.NoError(t, w.Add(newPodItem("ns", "a", "x"))) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := assembly.Merge(ctx, b.store, b.plan, b.dir)
	require.ErrorIs(t, err, context.Canceled)
}

// TestManyParts merges more sidecars than are open at once, with keys spread over all of them.
func TestManyParts(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	const parts, each = 150, 7
	for i := range parts {
		b.uploadPart(func(w *part.Writer) {
			for k := range each {
				require.NoError(t, w.Add(newPodItem("ns", fmt.Sprintf("%04d", (i*37+k*parts)%(parts*each)), "x")))
			}
		})
	}
	m := b.publishParts()
	bodies, _ := b.readTarball()
	require.Len(t, bodies, 1+2*m.Items)
	var last *manifest.Key
	n := 0
	for it, err := range b.openManifest().Items(t.Context(), manifest.Filter{}) {
		require.NoError(t, err)
		key := it.Key()
		require.True(t, last == nil || last.Compare(key) < 0)
		last = &key
		n++
	}
	require.Equal(t, m.Items, n)
}

// Catches adoption that compares only as many bytes as were expected: whatever follows them would
// be committed with the backup.
func TestAnObjectThatIsLongerIsNotAdopted(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.uploadPart(func(w *part.Writer) { require.NoError(t, w.Add(newPodItem("ns", "a", "x"))) })
	b.publishParts()
	merged, err := assembly.Merge(t.Context(), b.store, b.plan, b.dir)
	require.NoError(t, err)
	for _, key := range []string{layout.BackupTarball("b"), layout.BackupLog("b")} {
		require.NoError(t, objectstore.PutBytes(t.Context(), b.store, key, append(b.readObject(key), 0)))
	}
	_, err = assembly.Compose(t.Context(), b.store, b.plan)
	require.ErrorIs(t, err, assembly.ErrDiffers)
	require.ErrorContains(t, err, "is longer")
	_, err = assembly.Create(t.Context(), b.store, layout.BackupLog("b"), merged.Log)
	require.ErrorIs(t, err, assembly.ErrDiffers)
	require.ErrorContains(t, err, "is longer")
}

// Catches a tarball that is adopted by its length alone.
func TestATarballWithOtherBytesOfAPartIsNotAdopted(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	b.uploadPart(func(w *part.Writer) { require.NoError(t, w.Add(newPodItem("ns", "a", "x"))) })
	b.publishParts()
	tarball := b.readObject(layout.BackupTarball("b"))
	tarball[len(tarball)/2] ^= 1
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.BackupTarball("b"), tarball))
	_, err := assembly.Compose(t.Context(), b.store, b.plan)
	require.ErrorIs(t, err, assembly.ErrDiffers)
}

// Catches a merge that takes any sidecar which can be read: one of another part names objects that
// are not in the tarball.
func TestASidecarWithAnotherHashIsRefused(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	for i := range 2 {
		b.uploadPart(func(w *part.Writer) { require.NoError(t, w.Add(newPodItem("ns", fmt.Sprint(i), "x"))) })
	}
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, b.plan.Parts[0].SidecarKey, b.readObject(b.plan.Parts[1].SidecarKey)))
	_, err := assembly.Merge(t.Context(), b.store, b.plan, b.dir)
	require.ErrorIs(t, err, part.ErrCorrupt)
	require.ErrorContains(t, err, b.plan.Parts[0].SidecarKey)
}
