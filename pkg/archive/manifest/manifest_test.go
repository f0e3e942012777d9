package manifest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"compress/gzip"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// memory is a source of ranges that counts them.
type memory struct {
	data  []byte
	reads int
	bytes int64
	short bool
	fail  error
}

func (m *memory) ReadRange(_ context.Context, off, n int64) (io.ReadCloser, error) {
	m.reads++
	m.bytes += n
	if m.fail != nil {
		return nil, m.fail
	}
	end := min(off+n, int64(len(m.data)))
	if m.short {
		end -= n / 2
	}
	return io.NopCloser(bytes.NewReader(m.data[off:max(off, end)])), nil
}

type testObject struct {
	group, kind, resource, ns, name string
}

func (o testObject) manifestEntry(i int) *manifest.Entry {
	scope := "cluster"
	if o.ns != "" {
		scope = "namespaces/" + o.ns
	}
	return &manifest.Entry{
		Group: o.group, Version: "v1", Kind: o.kind, Resource: o.resource, Preferred: true, Size: int64(i), SHA256: sha256.Sum256([]byte(o.name)),
		Path: "resources/" + manifest.GroupResource(o.resource, o.group) + "/" + scope + "/" + o.name + ".json",
		Meta: &objmeta.Meta{Name: o.name, Namespace: o.ns, UID: fmt.Sprintf("%08x-%d", uint32(i)*2654435761, i), Labels: objmeta.Pairs{{Key: "i", Value: fmt.Sprint(i)}}},
	}
}

func addEntry(t testing.TB, w *manifest.Writer, e *manifest.Entry, offset int64) {
	t.Helper()
	if err := w.Add(manifest.Record{
		Key: manifest.AppendKey(nil, manifest.KindName(e.Group, e.Version, e.Kind), e.Meta.Namespace, e.Meta.Name),
		UID: []byte(e.Meta.UID), Path: []byte(e.Path), Entry: manifest.AppendEntry(nil, e), Offset: offset, Length: 10,
	}); err != nil {
		t.Fatal(err)
	}
}

var header = manifest.Header{Backup: "b", UID: "u", Cluster: "c", Revision: "42", StartTime: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}

func sampleObjects(pods int) []testObject {
	all := []testObject{
		{"apps", "Deployment", "deployments", "shop", "web"}, {"", "Namespace", "namespaces", "", "shop"}, {"", "Node", "nodes", "", "n1"},
	}
	for i := range pods {
		all = append(all, testObject{"", "Pod", "pods", fmt.Sprintf("ns-%02d", i%13), fmt.Sprintf("p-%05d \"é", i)})
	}
	slices.SortFunc(all, func(a, b testObject) int {
		return manifest.Key{Kind: manifest.KindName(a.group, "v1", a.kind), Namespace: a.ns, Name: a.name}.Compare(manifest.Key{Kind: manifest.KindName(b.group, "v1", b.kind), Namespace: b.ns, Name: b.name})
	})
	return all
}

func writeManifest(t testing.TB, objects []testObject) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := manifest.NewWriter(&out, header, t.TempDir())
	require.NoError(t, err)
	for i, o := range objects {
		addEntry(t, w, o.manifestEntry(i), int64(i)*100)
	}
	require.NoError(t, w.Close(manifest.Trailer{Cuts: []manifest.Cut{{Kind: "v1/Pod", Revision: "43", Reason: "compacted"}}, TarballSize: 99}))
	return out.Bytes()
}

func openManifest(t testing.TB, data []byte) (*manifest.Reader, *memory) {
	t.Helper()
	src := &memory{data: data}
	r, err := manifest.Open(t.Context(), src, int64(len(data)))
	require.NoError(t, err)
	return r, src
}

func TestWholeManifestIsOneJSONDocument(t *testing.T) {
	t.Parallel()
	for _, pods := range []int{0, 1, 2500} {
		objects := sampleObjects(pods)
		if pods == 0 {
			objects = nil
		}
		zip, err := gzip.NewReader(bytes.NewReader(writeManifest(t, objects)))
		require.NoError(t, err)
		text, err := io.ReadAll(zip)
		require.NoError(t, err)
		var doc struct {
			manifest.Header
			manifest.Trailer
			Kinds map[string]map[string][]manifest.Item `json:"kinds"`
			Index map[string]string                     `json:"index"`
		}
		require.NoError(t, json.Unmarshal(text, &doc))
		require.Equal(t, "1.2.0", doc.FormatVersion)
		require.Equal(t, "b", doc.Backup)
		require.Equal(t, "compacted", doc.Cuts[0].Reason)
		require.Len(t, doc.Index, len(objects))
		n := 0
		for kind, spaces := range doc.Kinds {
			for ns, items := range spaces {
				for _, it := range items {
					require.Equal(t, kind, it.Key().Kind)
					require.Equal(t, ns, it.Namespace)
					require.Equal(t, it.Path, doc.Index[it.UID])
					require.Equal(t, it.Path, it.String())
					n++
				}
			}
		}
		require.Equal(t, len(objects), n)
	}
}

func TestOneItemIsTwoRangeReads(t *testing.T) {
	t.Parallel()
	objects := sampleObjects(5000)
	data := writeManifest(t, objects)
	for _, i := range []int{0, 1, 2, 3, 999, 1000, 1001, 4321, len(objects) - 1} {
		r, src := openManifest(t, data)
		o := objects[i]
		key := manifest.Key{Kind: manifest.KindName(o.group, "v1", o.kind), Namespace: o.ns, Name: o.name}
		it, err := r.Lookup(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, key, it.Key())
		require.EqualValues(t, i*100, it.Offset)
		require.Equal(t, 2, src.reads, "directory and block")
		require.Less(t, src.bytes, int64(len(data)))
		byUID, err := r.LookupUID(t.Context(), it.UID)
		require.NoError(t, err)
		require.Equal(t, it, byUID)
		require.Equal(t, 4, src.reads, "index and block")
	}
	r, _ := openManifest(t, data)
	for _, key := range []manifest.Key{{}, {Kind: "v1/Pod", Namespace: "ns-00", Name: "p"}, {Kind: "zzz/Kind", Name: "x"}, {Kind: "a"}} {
		_, err := r.Lookup(t.Context(), key)
		require.ErrorIs(t, err, manifest.ErrNotFound)
	}
	for _, uid := range []string{"", "zzz", "8"} {
		_, err := r.LookupUID(t.Context(), uid)
		require.ErrorIs(t, err, manifest.ErrNotFound)
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	objects := sampleObjects(4000)
	data := writeManifest(t, objects)
	names := func(f manifest.Filter) (got []string, bytes int64) {
		r, src := openManifest(t, data)
		before := src.bytes
		for it, err := range r.Items(t.Context(), f) {
			require.NoError(t, err)
			got = append(got, it.Key().String())
		}
		return got, src.bytes - before
	}
	all, whole := names(manifest.Filter{})
	require.Len(t, all, len(objects))
	for _, f := range []manifest.Filter{
		{Kinds: []string{"apps/v1/Deployment"}}, {Kinds: []string{"v1/Pod"}, Namespaces: []string{"ns-03", "ns-12"}}, {Namespaces: []string{""}}, {Namespaces: []string{"ns-03"}}, {Kinds: []string{"none"}},
		{After: &manifest.Key{Kind: "v1/Pod", Namespace: "ns-11", Name: "p-00500"}}, {After: &manifest.Key{Kind: "zzz"}}, {After: &manifest.Key{}},
	} {
		var want []string
		for _, o := range objects {
			key := manifest.Key{Kind: manifest.KindName(o.group, "v1", o.kind), Namespace: o.ns, Name: o.name}
			if (len(f.Kinds) == 0 || slices.Contains(f.Kinds, key.Kind)) && (len(f.Namespaces) == 0 || slices.Contains(f.Namespaces, o.ns)) && (f.After == nil || key.Compare(*f.After) > 0) {
				want = append(want, key.String())
			}
		}
		got, bytes := names(f)
		require.Equal(t, want, got)
		if len(want) < 400 {
			require.Less(t, bytes, whole*3/5, "blocks that cannot hold an item are not read")
		}
	}
	got, _ := names(manifest.Filter{Texts: [][]byte{manifest.MemberText("name", "p-00500 \"é"), manifest.MemberText("kind", "Pod")}})
	require.Equal(t, []string{"v1/Pod ns-06/p-00500 \"é"}, got, "only lines that hold all texts")
	r, _ := openManifest(t, data)
	for range r.Items(t.Context(), manifest.Filter{}) {
		break // leaving early is fine
	}
	require.Equal(t, []manifest.KindInfo{
		{Kind: "apps/v1/Deployment", Resource: "deployments.apps", Preferred: true, Items: 1}, {Kind: "v1/Namespace", Resource: "namespaces", Preferred: true, Items: 1},
		{Kind: "v1/Node", Resource: "nodes", Preferred: true, Items: 1}, {Kind: "v1/Pod", Resource: "pods", Preferred: true, Items: 4000},
	}, r.Kinds())
	require.EqualValues(t, 4003, r.Len())
}

// "a-b/x" comes before "a/x", and that before "a0/x".
func TestBlocksOfNamespacesThatBeginAlike(t *testing.T) {
	t.Parallel()
	var objects []testObject
	spaces := []string{"a-b", "a", "a0"}
	for _, ns := range spaces {
		for i := range 1500 {
			objects = append(objects, testObject{"", "Pod", "pods", ns, fmt.Sprintf("p-%04d", i)})
		}
	}
	r, src := openManifest(t, writeManifest(t, objects))
	for _, ns := range spaces {
		src.bytes = 0
		count := 0
		for item, err := range r.Items(t.Context(), manifest.Filter{Namespaces: []string{ns}}) {
			require.NoError(t, err)
			require.Equal(t, ns, item.Namespace)
			count++
		}
		require.Equal(t, 1500, count)
		require.Less(t, src.bytes, int64(len(src.data))*4/5)
	}
}

func TestOrderIsChecked(t *testing.T) {
	t.Parallel()
	w, err := manifest.NewWriter(io.Discard, header, t.TempDir())
	require.NoError(t, err)
	defer w.Abort()
	objects := sampleObjects(2)
	e := objects[1].manifestEntry(0)
	addEntry(t, w, e, 0)
	for _, o := range objects[:2] {
		e := o.manifestEntry(0)
		err := w.Add(manifest.Record{Key: manifest.AppendKey(nil, manifest.KindName(e.Group, "v1", e.Kind), e.Meta.Namespace, e.Meta.Name), Entry: manifest.AppendEntry(nil, e)})
		require.ErrorIs(t, err, manifest.ErrOrder)
	}
}

const secretText = "SECRET-MATERIAL"

func TestSecretsAndLargeAnnotationsAreNotPublished(t *testing.T) {
	t.Parallel()
	annotate := func(resource, kind string, annotations objmeta.Pairs) manifest.Item {
		e := testObject{"", kind, resource, "ns", "n"}.manifestEntry(1)
		e.Meta.Annotations = annotations
		text := manifest.AppendEntry(nil, e)
		require.NotContains(t, string(text), secretText)
		var it manifest.Item
		require.NoError(t, json.Unmarshal([]byte("{"+string(text)+"}"), &it))
		return it
	}
	lastApplied := objmeta.Pair{Key: "kubectl.kubernetes.io/last-applied-configuration", Value: `{"data":"` + secretText + `"}`}
	large := objmeta.Pair{Key: "large", Value: strings.Repeat("x", 1025-len(secretText)) + secretText}
	limit := objmeta.Pair{Key: "limit", Value: strings.Repeat("x", 1024)}
	it := annotate("configmaps", "ConfigMap", objmeta.Pairs{lastApplied, {Key: "note", Value: "public"}, large, limit})
	require.Equal(t, map[string]string{"note": "public", "limit": limit.Value}, it.Annotations)
	sum := sha256.Sum256([]byte(large.Value))
	require.Equal(t, manifest.Hidden{Length: 1025, SHA256: hex.EncodeToString(sum[:])}, it.HiddenAnnotations["large"])
	require.Len(t, it.HiddenAnnotations, 2)

	it = annotate("secrets", "Secret", objmeta.Pairs{{Key: "kubernetes.io/service-account.name", Value: "robot"}, {Key: "kapp.k14s.io/original", Value: secretText}, lastApplied, {Key: "note", Value: secretText}})
	require.Equal(t, map[string]string{"kubernetes.io/service-account.name": "robot"}, it.Annotations)
	require.Len(t, it.HiddenAnnotations, 3)
	require.Equal(t, len(secretText), it.HiddenAnnotations["note"].Length)
}

func TestEntryHasEveryField(t *testing.T) {
	t.Parallel()
	e := &manifest.Entry{
		Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Actions: []string{"a", "b"}, Cut: "44", Live: true, Path: "p", Size: 7, SHA256: sha256.Sum256(nil),
		ContentHash: []byte{1, 0xff},
		References:  []manifest.Reference{{Kind: "Secret", Namespace: "ns", Name: "s", Relation: "mounts"}, {Group: "g", Kind: "K", Name: "n", Relation: "calls"}},
		Meta: &objmeta.Meta{
			Name: "n\n\"", Namespace: "ns", UID: "u", ResourceVersion: "5", Labels: objmeta.Pairs{{Key: "l", Value: ""}}, Annotations: objmeta.Pairs{{Key: "a\\", Value: "\x01é"}},
			Owners: []objmeta.Owner{{APIVersion: "v1", Kind: "K", Name: "o", UID: "ou", Controller: true, BlockOwnerDeletion: true}, {APIVersion: "v1", Kind: "K", Name: "o2", UID: "ou2"}},
		},
	}
	var it manifest.Item
	d := json.NewDecoder(strings.NewReader("{" + string(manifest.AppendEntry(nil, e)) + "}"))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&it))
	require.Equal(t, manifest.Item{
		Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "ns", Name: "n\n\"", UID: "u", ResourceVersion: "5", Labels: map[string]string{"l": ""},
		Annotations: map[string]string{"a\\": "\x01é"}, Owners: e.Meta.Owners, References: e.References, Actions: e.Actions, Cut: "44", Live: true, Path: "p", Size: 7,
		SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", ContentHash: "01ff",
	}, it)
}

func TestDamage(t *testing.T) {
	t.Parallel()
	data := writeManifest(t, sampleObjects(400))
	for _, n := range []int{0, 1, 41, 42, 100, len(data) / 2, len(data) - 1} {
		_, err := manifest.Open(t.Context(), &memory{data: data[:n]}, int64(n))
		require.ErrorIs(t, err, manifest.ErrCorrupt, "%d bytes", n)
	}
	r, src := openManifest(t, data)
	src.short = true
	_, err := r.Lookup(t.Context(), manifest.Key{Kind: "v1/Pod", Namespace: "ns-12", Name: "p-00389 \"é"})
	require.ErrorIs(t, err, manifest.ErrCorrupt)
	broken := errors.New("connection reset")
	src.short, src.fail = false, broken
	for _, err := range r.Items(t.Context(), manifest.Filter{}) {
		require.ErrorIs(t, err, broken)
		require.NotErrorIs(t, err, manifest.ErrCorrupt)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100 { // whatever is damaged, there is an error or the truth
		spoiled := bytes.Clone(data)
		spoiled[rng.IntN(len(spoiled))] ^= byte(1 + rng.IntN(255))
		r, err := manifest.Open(t.Context(), &memory{data: spoiled}, int64(len(spoiled)))
		for it, itemErr := range requireItems(t, r, err) {
			if err = itemErr; err != nil {
				break
			}
			require.NotEmpty(t, it.Name)
		}
	}
}

func requireItems(t *testing.T, r *manifest.Reader, err error) func(func(manifest.Item, error) bool) {
	if err != nil {
		return func(yield func(manifest.Item, error) bool) { yield(manifest.Item{}, err) }
	}
	return r.Items(t.Context(), manifest.Filter{})
}

func FuzzOpen(f *testing.F) {
	f.Add(writeManifest(f, sampleObjects(3)))
	f.Add(writeManifest(f, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		require.Less(t, limittest.Allocated(func() { readAll(t, data) }), uint64(bound+1000*len(data)))
	})
}

func readAll(t *testing.T, data []byte) {
	r, err := manifest.Open(t.Context(), &memory{data: data}, int64(len(data)))
	if err != nil {
		return
	}
	for _, err := range r.Items(t.Context(), manifest.Filter{}) {
		if err != nil {
			return
		}
	}
	_, _ = r.LookupUID(t.Context(), "0")
	_, _ = r.Namespaces(t.Context())
	for _, err := range manifest.Merge(t.Context(), r, r, manifest.MergeFilter{}) {
		if err != nil {
			break
		}
	}
	if g, err := manifest.ReadGraph(t.Context(), r); err == nil {
		_, _ = g.Find(manifest.ObjectKey{Kind: "Pod", Namespace: "ns", Name: "a"})
	}
}

// sink counts what is written.
type sink struct{ n int64 }

func (s *sink) Write(p []byte) (int, error) { s.n += int64(len(p)); return len(p), nil }

func TestWritingAHundredThousandItemsTakesBoundedMemory(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	out := &sink{}
	before := heap()
	w, err := manifest.NewWriter(out, header, t.TempDir())
	require.NoError(t, err)
	for i := range 100_000 {
		e := testObject{"", "Pod", "pods", "ns", fmt.Sprintf("pod-%07d", i)}.manifestEntry(i)
		e.Meta.Annotations = objmeta.Pairs{{Key: "note", Value: strings.Repeat("n", 300)}}
		addEntry(t, w, e, 0)
	}
	held := heap() - min(before, heap())
	require.Less(t, held, uint64(16<<20), "sorting buffer, one block and the directory")
	require.NoError(t, w.Close(manifest.Trailer{}))
	require.Greater(t, out.n, int64(1<<20))
	runtime.KeepAlive(w)
}

func TestReadingAHundredThousandItems(t *testing.T) {
	t.Parallel()
	objects := make([]testObject, 100_000)
	for i := range objects {
		objects[i] = testObject{"", "Pod", "pods", "ns", fmt.Sprintf("pod-%07d", i)}
	}
	data := writeManifest(t, objects)
	r, src := openManifest(t, data)
	n := 0
	for it, err := range r.Items(t.Context(), manifest.Filter{}) {
		if err != nil || objects[n].name != it.Name { // require's reflection is too slow here
			t.Fatalf("item %d is %s: %v", n, it.Name, err)
		}
		n++
	}
	require.Equal(t, len(objects), n)
	require.LessOrEqual(t, src.reads, 3)
	it, err := r.Lookup(t.Context(), manifest.Key{Kind: "v1/Pod", Namespace: "ns", Name: "pod-0077777"})
	require.NoError(t, err)
	require.LessOrEqual(t, src.reads, 4)
	require.EqualValues(t, 7777700, it.Offset)
}

// Damage inside a block is found before anything of the block is read, also by who stops early.
func TestNothingOfADamagedBlockIsRead(t *testing.T) {
	t.Parallel()
	whole := writeManifest(t, sampleObjects(1200))
	first := func(data []byte) (items []manifest.Item, err error) {
		r, err := manifest.Open(t.Context(), &memory{data: data}, int64(len(data)))
		if err != nil {
			return nil, err
		}
		for item, err := range r.Items(t.Context(), manifest.Filter{}) {
			if err != nil {
				return items, err
			}
			if items = append(items, item); len(items) == 700 {
				break
			}
		}
		return items, nil
	}
	want, err := first(whole)
	require.NoError(t, err)
	for at := 0; at < len(whole); at += 11 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		got, err := first(damaged)
		require.True(t, len(got) == 0 && errors.Is(err, manifest.ErrCorrupt) || err == nil && reflect.DeepEqual(want, got), "byte %d: %d items, %v", at, len(got), err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	keys := []manifest.Key{{Kind: "apps/v1/D", Namespace: "a", Name: "b"}, {Kind: "v1/N", Name: "x"}, {Kind: "v1/P", Namespace: "a-b", Name: "x"}, {Kind: "v1/P", Namespace: "a", Name: "x"}, {Kind: "v1/P", Namespace: "a", Name: "x.y"}}
	for i, k := range keys {
		b := manifest.AppendKey(nil, k.Kind, k.Namespace, k.Name)
		parsed, ok := manifest.ParseKey(b)
		require.True(t, ok)
		require.Equal(t, k, parsed)
		for j, o := range keys {
			require.Equal(t, i < j, k.Compare(o) < 0)
			require.Equal(t, k.Compare(o), bytes.Compare(b, manifest.AppendKey(nil, o.Kind, o.Namespace, o.Name)))
		}
	}
	for _, name := range []string{"v1/Pod", "apps/v1/Deployment"} {
		g, v, k, ok := manifest.SplitKindName(name)
		require.True(t, ok)
		require.Equal(t, name, manifest.KindName(g, v, k))
	}
	_, _, _, ok := manifest.SplitKindName("Pod")
	require.False(t, ok)
}
