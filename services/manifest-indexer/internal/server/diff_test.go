package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/difference"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// newDiffBed publishes backups "old" and "new" with these objects, each "KIND.VERSION.GROUP JSON".
func newDiffBed(t *testing.T, header manifest.Header, objects map[string][]string) *bed {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(newBackup("old"), newBackup("new")).Build()
	b := &bed{t: t, store: memstore.New()}
	b.startServer(c)
	for _, name := range []string{"old", "new"} {
		b.publishObjects(name, header, objects[name])
		header.Foreign = false
	}
	return b
}

func (b *bed) publishObjects(name string, header manifest.Header, objects []string) {
	b.t.Helper()
	dir, start := b.t.TempDir(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w, err := part.NewWriter(part.Config{Dir: dir, MemberBytes: 4096, ModTime: start})
	require.NoError(b.t, err)
	for _, object := range objects {
		kind, body, _ := strings.Cut(object, " ")
		gvk, _ := schema.ParseKindArg(kind)
		item, err := jsonlist.ParseObject([]byte(body))
		require.NoError(b.t, err, body)
		meta := &objmeta.Meta{}
		require.NoError(b.t, objmeta.Decode(item.Metadata, meta))
		require.NoError(b.t, w.Add(part.Item{
			GVK: *gvk, Resource: strings.ToLower(gvk.Kind) + "s", Preferred: true, Meta: meta, Raw: item.Raw, Envelope: item.Envelope,
		}))
	}
	sealed, err := w.Seal()
	require.NoError(b.t, err)
	key := layout.Part(name, "uid", 1, "all", 0, 0)
	b.uploadFile(key, sealed.Data)
	b.uploadFile(layout.Sidecar(key), sealed.Sidecar)
	plan := assembly.Plan{
		Backup: name, UID: "uid", ModTime: start, LogValue: "velero/" + name, Header: header,
		Parts: []assembly.PartRef{{Key: key, Size: sealed.Data.Size, SHA256: sealed.Data.SHA256, SidecarKey: layout.Sidecar(key)}},
	}
	_, err = assembly.Compose(b.t.Context(), b.store, plan)
	require.NoError(b.t, err)
	merged, err := assembly.Merge(b.t.Context(), b.store, plan, dir)
	require.NoError(b.t, err)
	b.uploadFile(layout.BackupManifest(name), merged.Manifest)
}

// diffStream collects what a server sends.
type diffStream struct {
	grpc.ServerStream
	ctx      context.Context
	messages []*manifestv1.DiffManifestsResponse
}

func (s *diffStream) Context() context.Context { return s.ctx }

func (s *diffStream) Send(m *manifestv1.DiffManifestsResponse) error {
	s.messages = append(s.messages, m)
	return nil
}

// diff returns a line for each object and each field that differs, and the counts.
func (b *bed) diff(req *manifestv1.DiffManifestsRequest) (lines []string, counts string) {
	b.t.Helper()
	req.From, req.To = "old", "new"
	stream := &diffStream{ctx: b.t.Context()}
	require.NoError(b.t, b.s.DiffManifests(req, stream))
	lines = []string{}
	for _, m := range stream.messages {
		for _, d := range m.GetDifferences() {
			change := strings.ToLower(strings.TrimPrefix(d.GetChange().String(), "CHANGE_"))
			lines = append(lines, fmt.Sprintf("%s %s %s/%s", change, d.GetKind(), d.GetNamespace(), d.GetName()))
			for _, f := range d.GetFields() {
				value := shownText(f.From) + " -> " + shownText(f.To)
				if f.GetMasked() {
					require.Nil(b.t, f.From)
					require.Nil(b.t, f.To)
					value = "masked"
				}
				lines = append(lines, "  "+f.GetPath()+": "+value)
			}
		}
		c := m.GetCounts()
		counts = fmt.Sprintf("+%d -%d ~%d =%d", c.GetAdded(), c.GetRemoved(), c.GetChanged(), c.GetUnchanged())
	}
	return lines, counts
}

func shownText(value *string) string {
	if value == nil {
		return "none"
	}
	return *value
}

const podHead = `{"metadata":{"name":"web","namespace":"shop","labels":{"app":"web"}},`

func TestDiffNamesObjectsAndFields(t *testing.T) {
	t.Parallel()
	b := newDiffBed(t, manifest.Header{}, map[string][]string{
		"old": {
			`ConfigMap.v1. {"metadata":{"name":"gone","namespace":"shop"}}`,
			`ConfigMap.v1. {"metadata":{"name":"same","namespace":"shop","resourceVersion":"1"},"data":{"a":"b"}}`,
			`Pod.v1. ` + podHead + `"spec":{"containers":[{"name":"a","image":"a:1"},{"name":"b","image":"b:1"}],"args":["x","y"]},"status":{"phase":"Pending"}}`,
			`Pod.v1. {"metadata":{"name":"steady","namespace":"shop"},"status":{"phase":"Pending"}}`,
			`Widget.v1.g.io {"metadata":{"name":"w","namespace":"other","annotations":{"a.io/b":"1"}},"spec":{"n":1}}`,
		},
		"new": {
			`ConfigMap.v1. {"metadata":{"name":"here","namespace":"shop"}}`,
			`ConfigMap.v1. {"metadata":{"name":"same","namespace":"shop","resourceVersion":"2"},"data":{"a":"b"}}`,
			`Pod.v1. ` + podHead + `"spec":{"containers":[{"name":"b","image":"b:2"},{"name":"c","image":"c:1"}],"args":["x","z","y"]},"status":{"phase":"Running"}}`,
			`Pod.v1. {"metadata":{"name":"steady","namespace":"shop"},"status":{"phase":"Running"}}`,
			`Widget.v2.g.io {"spec":{"n":1},"metadata":{"annotations":{"a.io/b":"2"},"name":"w","namespace":"other"}}`,
		},
	})
	lines, counts := b.diff(&manifestv1.DiffManifestsRequest{WithFields: true})
	require.Equal(t, []string{
		"removed ConfigMap shop/gone", "added ConfigMap shop/here", "changed Pod shop/web",
		`  spec.args[1]: "y" -> "z"`, `  spec.args[2]: none -> "y"`,
		`  spec.containers[a]: {"image":"a:1","name":"a"} -> none`, `  spec.containers[b].image: "b:1" -> "b:2"`, `  spec.containers[c]: none -> {"image":"c:1","name":"c"}`,
		"changed Widget other/w", `  metadata.annotations[a.io/b]: "1" -> "2"`,
	}, lines)
	require.Equal(t, "+1 -1 ~2 =2", counts)

	lines, counts = b.diff(&manifestv1.DiffManifestsRequest{})
	require.Equal(t, []string{"removed ConfigMap shop/gone", "added ConfigMap shop/here", "changed Pod shop/web", "changed Widget other/w"}, lines)
	require.Equal(t, "+1 -1 ~2 =2", counts)
	lines, _ = b.diff(&manifestv1.DiffManifestsRequest{Namespace: "other"})
	require.Equal(t, []string{"changed Widget other/w"}, lines)
	_, counts = b.diff(&manifestv1.DiffManifestsRequest{Kinds: []string{"po", "widgets"}})
	require.Equal(t, "+0 -0 ~2 =1", counts)
}

func TestDiffReadsBodiesWhereHashesProveNothing(t *testing.T) {
	t.Parallel()
	objects := map[string][]string{
		"old": {`Widget.v1.g.io {"metadata":{"name":"a"},"spec":{"x":1,"y":2}}`, `Widget.v1.g.io {"metadata":{"name":"b"},"spec":{"x":1,"y":2}}`},
		"new": {`Widget.v1.g.io {"spec":{"y":2,"x":1},"metadata":{"name":"a"}}`, `Widget.v1.g.io {"spec":{"y":3,"x":1},"metadata":{"name":"b"}}`},
	}
	lines, counts := newDiffBed(t, manifest.Header{Foreign: true}, objects).diff(&manifestv1.DiffManifestsRequest{})
	require.Equal(t, []string{"changed Widget /b"}, lines, "the tarball of another program")
	require.Equal(t, "+0 -0 ~1 =1", counts)
	converted := map[string][]string{"old": objects["old"], "new": {strings.Replace(objects["new"][0], ".v1.", ".v2.", 1), strings.Replace(objects["new"][1], ".v1.", ".v2.", 1)}}
	lines, _ = newDiffBed(t, manifest.Header{}, converted).diff(&manifestv1.DiffManifestsRequest{})
	require.Equal(t, []string{"changed Widget /b"}, lines, "another version of the kind")
}

// TestDiffShowsNoSecretValue compares Secrets that differ in every field that can hold a value.
func TestDiffShowsNoSecretValue(t *testing.T) {
	t.Parallel()
	secret := func(canary, label string) string {
		return `Secret.v1. {"metadata":{"name":"db","namespace":"shop","labels":{"l":"` + label + `"},"annotations":{"note":"` + canary + `","meta.helm.sh/release-name":"` + label +
			`","kubectl.kubernetes.io/last-applied-configuration":"` + canary + `"}},"type":"` + label + `","data":{"password":"` + canary + `"},"more":["` + canary + `"]}`
	}
	applied := `ConfigMap.v1. {"metadata":{"name":"c","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"CANARY-%s"}}}`
	b := newDiffBed(t, manifest.Header{}, map[string][]string{
		"old": {fmt.Sprintf(applied, "1"), secret("CANARY-1", "a"), `Secret.v1. {"metadata":{"name":"bare","namespace":"shop"}}`},
		"new": {fmt.Sprintf(applied, "2"), secret("CANARY-2", "b"), `Secret.v1. {"metadata":{"name":"bare","namespace":"shop","annotations":{"note":"CANARY-3"}},"stringData":{"x":"CANARY-4"}}`},
	})
	lines, _ := b.diff(&manifestv1.DiffManifestsRequest{WithFields: true})
	require.Equal(t, []string{
		"changed ConfigMap /c", "  metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]: masked",
		"changed Secret shop/bare", "  metadata.annotations.note: masked", "  stringData: masked",
		"changed Secret shop/db", "  data.password: masked",
		"  metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]: masked", `  metadata.annotations[meta.helm.sh/release-name]: "a" -> "b"`, "  metadata.annotations.note: masked",
		`  metadata.labels.l: "a" -> "b"`, "  more[0]: masked", `  type: "a" -> "b"`,
	}, lines)
}

// An object whose first annotations or labels came later differs in each of these.
func TestDiffComparesFirstAnnotationsOneByOne(t *testing.T) {
	t.Parallel()
	bare, meta := `ConfigMap.v1. {"metadata":{"name":"%s","labels":{}}}`, `ConfigMap.v1. {"metadata":{"name":"%s","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"CANARY","a":"1"},"labels":{"l":"2"}}}`
	b := newDiffBed(t, manifest.Header{}, map[string][]string{
		"old": {fmt.Sprintf(bare, "later"), fmt.Sprintf(meta, "no-more")}, "new": {fmt.Sprintf(meta, "later"), fmt.Sprintf(bare, "no-more")},
	})
	lines, _ := b.diff(&manifestv1.DiffManifestsRequest{WithFields: true})
	require.Equal(t, []string{
		"changed ConfigMap /later", "  metadata.annotations.a: none -> \"1\"", "  metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]: masked", "  metadata.labels.l: none -> \"2\"",
		"changed ConfigMap /no-more", "  metadata.annotations.a: \"1\" -> none", "  metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]: masked", "  metadata.labels.l: \"2\" -> none",
	}, lines)
}

func TestDiffIsBounded(t *testing.T) {
	t.Parallel()
	fields := func(value string) string {
		var out []string
		for i := range 2 * difference.MaxFields {
			out = append(out, fmt.Sprintf(`"k%03d%s":"%s"`, i, strings.Repeat("k", 2*difference.MaxValue), value))
		}
		return `ConfigMap.v1. {"metadata":{"name":"large"},"data":{` + strings.Join(out, ",") + `}}`
	}
	objects := map[string][]string{"old": {fields("a")}, "new": {fields(strings.Repeat("é", difference.MaxValue))}}
	for i := range 250 {
		objects["new"] = append(objects["new"], fmt.Sprintf(`Widget.v1.g.io {"metadata":{"name":"w-%03d"}}`, i))
	}
	b := newDiffBed(t, manifest.Header{}, objects)
	stream := &diffStream{ctx: t.Context()}
	require.NoError(t, b.s.DiffManifests(&manifestv1.DiffManifestsRequest{From: "old", To: "new", WithFields: true}, stream))
	last := stream.messages[len(stream.messages)-1].GetDifferences()
	large := last[len(last)-1]
	require.Len(t, large.GetFields(), difference.MaxFields)
	require.True(t, large.GetMoreFields())
	require.LessOrEqual(t, len(large.GetFields()[0].GetTo()), difference.MaxValue+40)
	require.Contains(t, large.GetFields()[0].GetTo(), "(2050 bytes)")
	require.LessOrEqual(t, len(large.GetFields()[0].GetPath()), difference.MaxValue+40)
	require.Contains(t, large.GetFields()[0].GetPath(), "(2057 bytes)")
	require.Len(t, stream.messages, 51)
	stream = &diffStream{ctx: t.Context()}
	require.NoError(t, b.s.DiffManifests(&manifestv1.DiffManifestsRequest{From: "old", To: "new"}, stream))
	require.Len(t, stream.messages, 3)
	require.EqualValues(t, 250, stream.messages[2].GetCounts().GetAdded())
}

func TestDiffErrors(t *testing.T) {
	t.Parallel()
	object := `ConfigMap.v1. {"metadata":{"name":"c"},"data":{"a":"1"}}`
	b := newDiffBed(t, manifest.Header{}, map[string][]string{"old": {object}, "new": {strings.Replace(object, `"1"`, `"2"`, 1)}})
	call := func(req *manifestv1.DiffManifestsRequest) error {
		return b.s.DiffManifests(req, &diffStream{ctx: t.Context()})
	}
	require.ErrorContains(t, call(&manifestv1.DiffManifestsRequest{From: "absent", To: "new"}), `backup "absent"`)
	require.ErrorContains(t, call(&manifestv1.DiffManifestsRequest{From: "old", To: "absent"}), `backup "absent"`)
	require.ErrorIs(t, call(&manifestv1.DiffManifestsRequest{From: "old", To: "new", Kinds: []string{"pods"}}), errgrpc.ErrNotFound)
	b.store.Set(layout.BackupTarball("new"), []byte("no tarball"))
	err := call(&manifestv1.DiffManifestsRequest{From: "old", To: "new", WithFields: true})
	require.ErrorIs(t, err, errgrpc.ErrCorrupt)
	require.ErrorContains(t, err, `backup "new"`)
}

// Damage of one manifest says nothing about the other one.
func TestDiffMarksOnlyTheDamagedManifest(t *testing.T) {
	t.Parallel()
	object := []string{`ConfigMap.v1. {"metadata":{"name":"c"},"data":{"a":"1"}}`}
	for _, damaged := range []string{"old", "new"} {
		b := newDiffBed(t, manifest.Header{}, map[string][]string{"old": object, "new": object})
		whole, _ := b.store.Bytes(layout.BackupManifest(damaged))
		for i := 200; i < 260; i++ {
			whole[i] ^= 0x55
		}
		b.store.Set(layout.BackupManifest(damaged), whole)
		err := b.s.DiffManifests(&manifestv1.DiffManifestsRequest{From: "old", To: "new"}, &diffStream{ctx: t.Context()})
		require.ErrorIs(t, err, errgrpc.ErrCorrupt)
		for _, name := range []string{"old", "new"} {
			require.Equal(t, name == damaged, b.s.Rebuilder.isDamaged(newBackup(name)), "%s damaged, %s", damaged, name)
		}
	}
}
