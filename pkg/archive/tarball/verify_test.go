package tarball_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// verifyBed is a backup "b" of forty ConfigMaps in two parts, of which the second stores one again.
type verifyBed struct {
	t     *testing.T
	store *memstore.Store
	items []manifest.Item
}

func newVerifyBed(t *testing.T) *verifyBed {
	t.Helper()
	b := &verifyBed{t: t, store: memstore.New()}
	plan := assembly.Plan{Backup: "b", UID: "u", ModTime: time.Unix(0, 0), LogValue: "velero/b"}
	dir := t.TempDir()
	for n, names := range [][]string{make([]string, 40), {"c-07", "late"}} {
		w, err := part.NewWriter(part.Config{Dir: dir, MemberBytes: 4096, ModTime: plan.ModTime})
		require.NoError(t, err)
		for i, name := range names {
			if name == "" {
				name = fmt.Sprintf("c-%02d", i)
			}
			body := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop"},"data":"%0800d"}`, name, n)
			require.NoError(t, w.Add(part.Item{
				GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps", Preferred: true, Raw: []byte(body),
				Meta: &objmeta.Meta{Name: name, Namespace: "shop"},
			}))
		}
		sealed, err := w.Seal()
		require.NoError(t, err)
		key := layout.Part("b", "u", 1, "all", 0, n)
		b.putFile(key, sealed.Data)
		b.putFile(layout.Sidecar(key), sealed.Sidecar)
		plan.Parts = append(plan.Parts, assembly.PartRef{Key: key, Size: sealed.Data.Size, SHA256: sealed.Data.SHA256, SidecarKey: layout.Sidecar(key)})
	}
	_, err := assembly.Compose(t.Context(), b.store, plan)
	require.NoError(t, err)
	merged, err := assembly.Merge(t.Context(), b.store, plan, dir)
	require.NoError(t, err)
	b.putFile(layout.BackupManifest("b"), merged.Manifest)
	for item, err := range b.open().Items(t.Context(), manifest.Filter{}) {
		require.NoError(t, err)
		b.items = append(b.items, item)
	}
	return b
}

func (b *verifyBed) putFile(key string, f part.File) {
	b.t.Helper()
	b.store.Set(key, readFile(b.t, f.Path))
}

func (b *verifyBed) open() *manifest.Reader {
	b.t.Helper()
	m, err := tarball.OpenManifest(b.t.Context(), b.store, "b")
	require.NoError(b.t, err)
	return m
}

func (b *verifyBed) verify() *tarball.Verification {
	b.t.Helper()
	v, err := tarball.Verify(b.t.Context(), b.store, b.open(), "b", b.t.TempDir(), tarball.Limits{}, func(read, size int64) { require.LessOrEqual(b.t, read, size) })
	require.NoError(b.t, err)
	return v
}

// faults counts the faults of each kind.
func faults(v *tarball.Verification) map[tarball.FaultKind]int {
	found := map[tarball.FaultKind]int{}
	for _, f := range v.Faults {
		found[f.Kind]++
	}
	return found
}

// rewriteManifest writes the manifest anew with the items that change lets pass.
func (b *verifyBed) rewriteManifest(change func(i int, item *manifest.Item) bool) {
	b.t.Helper()
	b.store.Set(layout.BackupManifest("b"), writeManifest(b.t, b.open().Trailer(), b.items, change))
}

func TestVerifyFindsNothingInASoundBackup(t *testing.T) {
	t.Parallel()
	b := newVerifyBed(t)
	v := b.verify()
	require.Empty(t, v.Faults, "an object that was stored twice counts once")
	require.EqualValues(t, 41, v.Objects)
	whole, _ := b.store.Bytes(layout.BackupTarball("b"))
	require.EqualValues(t, len(whole), v.Bytes)
}

func TestVerifyFindsWhatTheManifestHasWrong(t *testing.T) {
	t.Parallel()
	for want, change := range map[tarball.FaultKind]func(i int, item *manifest.Item) bool{
		tarball.FaultExtra: func(i int, _ *manifest.Item) bool { return i != 3 },
		tarball.FaultMissing: func(i int, item *manifest.Item) bool {
			if i == 40 {
				item.Name, item.Path = "later", "resources/configmaps/namespaces/shop/later.json"
			}
			return true
		},
		tarball.FaultDiffers: func(i int, item *manifest.Item) bool { item.Size += int64(i / 40); return true },
		tarball.FaultUnreadable: func(i int, item *manifest.Item) bool {
			item.Offset += int64(i / 40)
			item.Length -= int64(i / 40)
			return true
		},
	} {
		b := newVerifyBed(t)
		b.rewriteManifest(change)
		v := b.verify()
		require.NotZero(t, faults(v)[want], "%s: %v", want, v.Faults)
		require.LessOrEqual(t, v.Found, int64(3), "%s: %v", want, v.Faults)
	}
}

// Damage of one piece hides nothing of the others.
func TestVerifyFindsDamageOfTheTarball(t *testing.T) {
	t.Parallel()
	b := newVerifyBed(t)
	whole, _ := b.store.Bytes(layout.BackupTarball("b"))
	hit := b.items[20]
	damaged := append([]byte{}, whole...)
	damaged[hit.Offset+hit.Length/2] ^= 0xff
	b.store.Set(layout.BackupTarball("b"), damaged)
	v := b.verify()
	inMember := 0
	for _, item := range b.items {
		if item.Offset == hit.Offset {
			inMember++
		}
	}
	require.Less(t, inMember, 30)
	require.Equal(t, map[tarball.FaultKind]int{tarball.FaultUnreadable: int(v.Found)}, faults(v))
	require.LessOrEqual(t, v.Found, int64(inMember)+1)
	require.Contains(t, fmt.Sprint(v.Faults), hit.Path)

	b.store.Set(layout.BackupTarball("b"), whole[:b.items[40].Offset])
	v = b.verify()
	require.Contains(t, fmt.Sprint(v.Faults), b.items[40].Path)
	require.Contains(t, fmt.Sprint(v.Faults), "the manifest says")
	require.NotContains(t, fmt.Sprint(v.Faults), b.items[1].Path)

	require.NoError(t, b.store.Delete(t.Context(), layout.BackupTarball("b")))
	v = b.verify()
	require.EqualValues(t, 42, v.Found)
	require.Equal(t, "the tarball is missing", v.Faults[0].Detail)
}

// What the store does is no fault of the backup.
func TestVerifyPassesOnErrorsOfTheStore(t *testing.T) {
	t.Parallel()
	b := newVerifyBed(t)
	m := b.open()
	away := errors.New("the bucket is away")
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpGet && key == layout.BackupTarball("b") {
			return away
		}
		return nil
	})
	_, err := tarball.Verify(t.Context(), b.store, m, "b", t.TempDir(), tarball.Limits{}, func(_, _ int64) {})
	require.ErrorIs(t, err, away)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = tarball.Verify(ctx, b.store, m, "b", t.TempDir(), tarball.Limits{}, func(_, _ int64) {})
	require.ErrorIs(t, err, context.Canceled)
}

// A tarball of Velero's is compared with the manifest that was made of it before.
func TestVerifyVelerosTarball(t *testing.T) {
	t.Parallel()
	entries := veleroTarball()
	store := storeTarball(t, packTarball(t, entries))
	made, _, err := tarball.RebuildManifest(t.Context(), store, manifest.Header{Backup: "b"}, t.TempDir(), tarball.Limits{})
	require.NoError(t, err)
	require.NoError(t, objectstore.CreateBytes(t.Context(), store, layout.BackupManifest("b"), readFile(t, made.Path)))
	b := &verifyBed{t: t, store: store.(*memstore.Store)}
	v := b.verify()
	require.Empty(t, v.Faults)
	require.EqualValues(t, 24, v.Objects)
	var told []int64
	_, err = tarball.Verify(t.Context(), b.store, b.open(), "b", t.TempDir(), tarball.Limits{}, func(read, size int64) { told = append(told, read, size) })
	require.NoError(t, err)
	require.NotEmpty(t, told, "it tells how far it is, though its manifest names no pieces")
	whole, _ := b.store.Bytes(layout.BackupTarball("b"))
	require.Equal(t, []int64{int64(len(whole)), int64(len(whole))}, told[len(told)-2:])

	entries[2].body = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"other"}}`
	b.store.Set(layout.BackupTarball("b"), packTarball(t, entries[:len(entries)-1]))
	v = b.verify()
	require.Contains(t, fmt.Sprint(v.Faults), "the SHA-256 of the tarball")
	require.Contains(t, fmt.Sprint(v.Faults), "its second copy")
}

func FuzzVerify(f *testing.F) {
	f.Add(packTarball(f, veleroTarball()))
	f.Fuzz(func(t *testing.T, data []byte) {
		store := storeTarball(t, data)
		limits := tarball.Limits{TotalBytes: 1 << 20, EntryBytes: 1 << 16}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		made, passed, err := tarball.RebuildManifest(t.Context(), store, manifest.Header{Backup: "b"}, t.TempDir(), limits)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20+1000*len(data)))
		if err != nil || passed > 0 {
			return
		}
		require.NoError(t, objectstore.CreateBytes(t.Context(), store, layout.BackupManifest("b"), readFile(t, made.Path)))
		b := &verifyBed{t: t, store: store.(*memstore.Store)}
		require.NotPanics(t, func() { b.verify() })
	})
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func writeManifest(t *testing.T, trailer manifest.Trailer, items []manifest.Item, change func(i int, item *manifest.Item) bool) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := manifest.NewWriter(&out, manifest.Header{Backup: "b"}, t.TempDir())
	require.NoError(t, err)
	for i, item := range items {
		if !change(i, &item) {
			continue
		}
		e := manifest.Entry{Version: item.Version, Kind: item.Kind, Resource: item.Resource, Preferred: true, Path: item.Path, Size: item.Size,
			Meta: &objmeta.Meta{Namespace: item.Namespace, Name: item.Name}}
		_, err := hex.Decode(e.SHA256[:], []byte(item.SHA256))
		require.NoError(t, err)
		require.NoError(t, w.Add(manifest.Record{
			Key: manifest.AppendKey(nil, "v1/ConfigMap", item.Namespace, item.Name), Path: []byte(item.Path),
			Entry: manifest.AppendEntry(nil, &e), Offset: item.Offset, Length: item.Length,
		}))
	}
	require.NoError(t, w.Close(trailer))
	return out.Bytes()
}
