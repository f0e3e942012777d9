package part_test

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
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

var (
	startTime  = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	podKind    = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	deployKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
)

func newPodItem(ns, name, data string) part.Item {
	raw := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":"uid-%s"},"spec":{"data":%q}}`, name, ns, name, data)
	return part.Item{
		GVK: podKind, Resource: "pods", Preferred: true, Raw: []byte(raw),
		Meta: &objmeta.Meta{Name: name, Namespace: ns, UID: "uid-" + name},
	}
}

func newWriter(t *testing.T, cfg part.Config) *part.Writer {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.ModTime = startTime
	w, err := part.NewWriter(cfg)
	require.NoError(t, err)
	t.Cleanup(w.Discard)
	return w
}

type tarEntry struct {
	head tar.Header
	body string
}

func readTar(t *testing.T, data []byte) map[string]tarEntry {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	entries := map[string]tarEntry{}
	r := tar.NewReader(zip)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		require.NoError(t, err)
		body, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NotContains(t, entries, h.Name)
		entries[h.Name] = tarEntry{*h, string(body)}
	}
}

func readContent(t *testing.T, f part.File) []byte {
	t.Helper()
	data, err := os.ReadFile(f.Path)
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	require.Equal(t, f.SHA256, hex.EncodeToString(sum[:]))
	require.EqualValues(t, f.Size, len(data))
	return data
}

type sidecar struct {
	items  []manifest.Item
	failed []manifest.Key
	notes  []joblog.Entry
}

func readSidecar(t *testing.T, f part.File) sidecar {
	t.Helper()
	s, err := part.OpenSidecar(bytes.NewReader(readContent(t, f)))
	require.NoError(t, err)
	var out sidecar
	last := ""
	for {
		key, value, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		e, err := part.ParseEntry(key, value)
		require.NoError(t, err)
		require.LessOrEqual(t, last, string(e.Key))
		last = string(e.Key)
		parsed, ok := manifest.ParseKey(e.Key)
		require.True(t, ok)
		if !e.Stored {
			out.failed = append(out.failed, parsed)
			continue
		}
		var it manifest.Item
		require.NoError(t, json.Unmarshal([]byte("{"+string(e.JSON)+"}"), &it))
		it.Offset, it.Length = e.Offset, e.Length
		require.Equal(t, parsed, it.Key())
		require.Equal(t, it.Path, string(e.Path))
		require.Equal(t, it.UID, string(e.UID))
		out.items = append(out.items, it)
	}
	for {
		n, err := s.Note()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		out.notes = append(out.notes, n)
	}
	items, failed, _, _ := s.Counts()
	require.Equal(t, len(out.items), items)
	require.Equal(t, len(out.failed), failed)
	return out
}

// checkSealedPart holds the manifest entries of a part against its tar entries.
func checkSealedPart(t *testing.T, s *part.Sealed) (map[string]tarEntry, sidecar) {
	t.Helper()
	data := readContent(t, s.Data)
	entries, side := readTar(t, data), readSidecar(t, s.Sidecar)
	require.Len(t, side.items, s.Items)
	for _, it := range side.items {
		member := readTar(t, data[it.Offset:it.Offset+it.Length])
		require.Contains(t, member, it.Path, "the member named by the manifest holds the item")
		body := member[it.Path].body
		require.EqualValues(t, it.Size, len(body))
		sum := sha256.Sum256([]byte(body))
		require.Equal(t, it.SHA256, hex.EncodeToString(sum[:]))
		require.Equal(t, body, entries[it.Path].body)
	}
	return entries, side
}

func TestLayout(t *testing.T) {
	t.Parallel()
	w := newWriter(t, part.Config{})
	require.NoError(t, w.Add(newPodItem("shop", "web", "x")))
	node := part.Item{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Node"}, Resource: "nodes", Preferred: true, Raw: []byte(`{}`), Meta: &objmeta.Meta{Name: "n1"}}
	require.NoError(t, w.Add(node))
	typed := part.Item{
		GVK: deployKind, Resource: "deployments", Preferred: true, HasTypeMeta: true, Spaced: true,
		Raw: []byte("{ \"apiVersion\":\"apps/v1\",\n\"kind\": \"Deployment\", \"x\":\"a b\" }"), Meta: &objmeta.Meta{Name: "d", Namespace: "shop"},
	}
	require.NoError(t, w.Add(typed))
	old := typed
	old.GVK.Version, old.Preferred = "v1beta1", false
	require.NoError(t, w.Add(old))
	s, err := w.Seal()
	require.NoError(t, err)
	entries, side := checkSealedPart(t, s)
	podBody := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"uid-web"},"spec":{"data":"x"}}`
	deployBody := `{"apiVersion":"apps/v1","kind":"Deployment","x":"a b"}`
	want := map[string]string{
		"resources/pods/namespaces/shop/web.json":                               podBody,
		"resources/pods/v1-preferredversion/namespaces/shop/web.json":           podBody,
		"resources/nodes/cluster/n1.json":                                       `{"apiVersion":"v1","kind":"Node"}`,
		"resources/nodes/v1-preferredversion/cluster/n1.json":                   `{"apiVersion":"v1","kind":"Node"}`,
		"resources/deployments.apps/namespaces/shop/d.json":                     deployBody,
		"resources/deployments.apps/v1-preferredversion/namespaces/shop/d.json": deployBody,
		"resources/deployments.apps/v1beta1/namespaces/shop/d.json":             deployBody,
	}
	require.Len(t, entries, len(want))
	for path, body := range want {
		require.Equal(t, body, entries[path].body, path)
		h := entries[path].head
		require.EqualValues(t, 0o755, h.Mode)
		require.True(t, startTime.Equal(h.ModTime))
		require.EqualValues(t, tar.TypeReg, h.Typeflag)
		require.Empty(t, h.Uname)
	}
	kinds := make([]string, 0, 4)
	for _, it := range side.items {
		kinds = append(kinds, it.Key().String())
	}
	require.Equal(t, []string{"apps/v1/Deployment shop/d", "apps/v1beta1/Deployment shop/d", "v1/Node n1", "v1/Pod shop/web"}, kinds, "sorted although added out of order")
}

func TestLongAndOddNames(t *testing.T) {
	t.Parallel()
	w := newWriter(t, part.Config{})
	names := []string{
		strings.Repeat("a", 253), strings.Repeat("b", 80), "system:aggregate-to-view", "größe", strings.Repeat("é", 120), "a b\tc", `back\slash`,
		strings.Repeat("c", 100-len("resources/pods/namespaces/ns/.json")), strings.Repeat("d", 101-len("resources/pods/namespaces/ns/.json")),
	}
	for n := 90; n < 110; n++ {
		names = append(names, fmt.Sprintf("%03d", n)+strings.Repeat("x", n))
	}
	for _, n := range names {
		require.NoError(t, w.Add(newPodItem("ns", n, "")))
	}
	s, err := w.Seal()
	require.NoError(t, err)
	entries, _ := checkSealedPart(t, s)
	require.Len(t, entries, 2*len(names))
	for _, n := range names {
		require.Contains(t, entries, "resources/pods/namespaces/ns/"+n+".json")
		require.Contains(t, entries, "resources/pods/v1-preferredversion/namespaces/ns/"+n+".json")
	}
}

func TestInvalidItemsLeaveThePartAsItWas(t *testing.T) {
	t.Parallel()
	w := newWriter(t, part.Config{})
	require.NoError(t, w.Add(newPodItem("ns", "good", "x")))
	for field, spoil := range map[string]func(*part.Item){
		"no metadata":        func(i *part.Item) { i.Meta = nil },
		"metadata.name":      func(i *part.Item) { i.Meta.Name = "" },
		`"../../etc/passwd"`: func(i *part.Item) { i.Meta.Name = "../../etc/passwd" },
		"metadata.namespace": func(i *part.Item) { i.Meta.Namespace = ".." },
		"version":            func(i *part.Item) { i.GVK.Version = "" },
		"kind":               func(i *part.Item) { i.GVK.Kind = "" },
		"resource":           func(i *part.Item) { i.Resource = "a/b" },
		"no JSON object":     func(i *part.Item) { i.Raw = []byte("[]") },
	} {
		it := newPodItem("ns", "bad", "x")
		spoil(&it)
		err := w.Add(it)
		require.ErrorIs(t, err, part.ErrInvalidItem)
		require.ErrorContains(t, err, field)
	}
	s, err := w.Seal()
	require.NoError(t, err)
	entries, _ := checkSealedPart(t, s)
	require.Len(t, entries, 2)
}

func TestNotesAndFailures(t *testing.T) {
	t.Parallel()
	w := newWriter(t, part.Config{})
	note := joblog.Entry{Time: startTime, Level: joblog.Error, Message: "m", Err: "e", Scoped: true, Namespace: "ns", Resource: "pods", Name: "p"}
	require.NoError(t, w.Note(note))
	require.NoError(t, w.Note(joblog.Entry{Level: joblog.Warning, Message: "w"}))
	require.NoError(t, w.Note(joblog.Entry{Level: joblog.Info, Message: "i"}))
	require.NoError(t, w.Fail(newPodItem("ns", "p", "")))
	s, err := w.Seal()
	require.NoError(t, err)
	require.Equal(t, part.File{}, s.Data, "nothing to upload")
	require.Equal(t, [4]int{0, 1, 1, 1}, [4]int{s.Items, s.Failed, s.Warnings, s.Errors})
	side := readSidecar(t, s.Sidecar)
	require.Equal(t, []manifest.Key{{Kind: "v1/Pod", Namespace: "ns", Name: "p"}}, side.failed)
	require.Len(t, side.notes, 3)
	require.Equal(t, note, side.notes[0])
	left, err := os.ReadDir(filepath.Dir(s.Sidecar.Path))
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.ErrorIs(t, w.Add(newPodItem("a", "b", "")), part.ErrSealed)
	w.Discard()
	require.FileExists(t, s.Sidecar.Path, "discarding a sealed part is harmless")
}

// TestRewind writes pages of random items, cuts some of them back, and expects what a writer that
// never saw those holds.
func TestRewind(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	w, plain := newWriter(t, part.Config{MemberBytes: 20_000}), newWriter(t, part.Config{MemberBytes: 20_000})
	page := func(targets []*part.Writer, n int) {
		for i := range n {
			size := rng.IntN(3000)
			if i%17 == 5 {
				size = 40_000 + rng.IntN(90_000)
			}
			var data strings.Builder
			for data.Len() < size {
				fmt.Fprintf(&data, "%x", rng.Uint64())
			}
			it := newPodItem("ns", fmt.Sprintf("p-%d", rng.Uint64()), data.String())
			for _, x := range targets {
				require.NoError(t, x.Add(it))
				require.NoError(t, x.Note(joblog.Entry{Level: joblog.Warning, Message: it.Meta.Name}))
			}
		}
	}
	both := []*part.Writer{w, plain}
	for range 12 {
		page(both, rng.IntN(30))
		m, err := w.Mark()
		require.NoError(t, err)
		for range rng.IntN(3) {
			page([]*part.Writer{w}, 1+rng.IntN(40))
			if rng.IntN(2) == 0 {
				_, err := w.Mark()
				require.NoError(t, err)
			}
			require.NoError(t, w.Rewind(m))
		}
	}
	require.Equal(t, plain.Items(), w.Items())
	got, err := w.Seal()
	require.NoError(t, err)
	want, err := plain.Seal()
	require.NoError(t, err)
	gotEntries, gotSide := checkSealedPart(t, got)
	wantEntries, wantSide := checkSealedPart(t, want)
	require.Equal(t, wantEntries, gotEntries)
	require.Equal(t, wantSide.notes, gotSide.notes)
	require.Equal(t, want.Warnings, got.Warnings)
	require.Len(t, gotSide.items, len(wantSide.items))
	for i := range wantSide.items {
		require.Equal(t, wantSide.items[i].Path, gotSide.items[i].Path)
	}
}

func TestMarksOfOtherWriters(t *testing.T) {
	t.Parallel()
	a, b := newWriter(t, part.Config{}), newWriter(t, part.Config{})
	require.NoError(t, a.Add(newPodItem("ns", "x", "")))
	early, err := b.Mark()
	require.NoError(t, err)
	require.ErrorIs(t, a.Rewind(early), part.ErrMark)
	start, err := a.Mark()
	require.NoError(t, err)
	require.NoError(t, a.Add(newPodItem("ns", "y", "")))
	late, err := a.Mark()
	require.NoError(t, err)
	require.NoError(t, a.Rewind(start))
	require.ErrorIs(t, a.Rewind(late), part.ErrMark)
}

func TestDiscardLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newWriter(t, part.Config{Dir: dir})
	require.NoError(t, w.Add(newPodItem("ns", "x", "")))
	w.Discard()
	w.Discard()
	_, err := w.Seal()
	require.ErrorIs(t, err, part.ErrSealed)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = part.NewWriter(part.Config{Dir: dir + "/missing"})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = part.NewWriter(part.Config{Dir: dir, Level: 77})
	require.Error(t, err)
}

func TestDamagedSidecars(t *testing.T) {
	t.Parallel()
	w := newWriter(t, part.Config{})
	for i := range 12 {
		require.NoError(t, w.Add(newPodItem("ns", fmt.Sprint(i), "x")))
	}
	s, err := w.Seal()
	require.NoError(t, err)
	whole := readContent(t, s.Sidecar)
	for n := range len(whole) {
		require.ErrorIs(t, readThrough(whole[:n]), part.ErrCorrupt, "cut after %d of %d bytes", n, len(whole))
	}
	require.NoError(t, readThrough(whole))
	require.ErrorIs(t, readThrough(append(bytes.Clone(whole), 'x')), part.ErrCorrupt)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 0x40
	require.ErrorIs(t, readThrough(flipped), part.ErrCorrupt)
}

func readThrough(data []byte) error {
	s, err := part.OpenSidecar(bytes.NewReader(data))
	if err != nil {
		return err
	}
	for {
		if _, err := s.Note(); errors.Is(err, io.EOF) && !errors.Is(err, part.ErrCorrupt) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func FuzzSidecar(f *testing.F) {
	f.Add([]byte("holdfast sidecar 1\n\x00\x00\x00\x02{}"))
	f.Add([]byte("holdfast sidecar 1\n\x03\x01abcf\x00\x00\x02{}\x00\x02{}"))
	f.Add([]byte("holdfast sidecar 1\n\xff\xff\xff\xff\xff\x01\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var zipped bytes.Buffer
		zip := gzip.NewWriter(&zipped)
		_, err := zip.Write(data)
		require.NoError(t, err)
		require.NoError(t, zip.Close())
		require.Less(t, limittest.Allocated(func() { readFuzzed(&zipped) }), uint64(160<<20+2000*len(data)))
	})
}

// readFuzzed reads what may be a sidecar to its end.
func readFuzzed(r io.Reader) {
	s, err := part.OpenSidecar(r)
	for err == nil {
		var key, value []byte
		if key, value, err = s.Next(); err == nil {
			_, _ = part.ParseEntry(key, value)
		}
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, part.ErrCorrupt) {
		for err = nil; err == nil; {
			_, err = s.Note()
		}
	}
}
