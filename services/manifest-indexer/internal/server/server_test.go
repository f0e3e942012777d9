package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

type bed struct {
	t     *testing.T
	store *memstore.Store
	s     *Server
}

// OpenName implements Opener.
func (b *bed) OpenName(context.Context, string) (objectstore.Store, error) { return b.store, nil }

func newBackup(name string) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID("uid-" + name)}}
	b.Status.Phase = velerov1.BackupPhaseCompleted
	b.Spec.StorageLocation = "default"
	return b
}

// startServer makes the server and does the work of its Rebuilder until the test ends.
func (b *bed) startServer(c client.Client) {
	b.s = &Server{Reader: c, Namespace: "velero", Opener: b, Clock: clock.RealClock{}, Graphs: semaphore.NewWeighted(1), Rebuilder: NewRebuilder(RebuilderConfig{
		Reader: c, Namespace: "velero", Opener: b, WorkDir: b.t.TempDir(), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
	})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- b.s.Rebuilder.Run(ctx) }()
	b.t.Cleanup(func() { cancel(); <-ended })
}

// newBed publishes backup "b" as the backup-runner does.
func newBed(t *testing.T) *bed {
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(newBackup("b"), newBackup("velero-made")).Build()
	b := &bed{t: t, store: memstore.New()}
	b.startServer(c)
	start, dir := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), t.TempDir()
	w, err := part.NewWriter(part.Config{Dir: dir, MemberBytes: 4096, ModTime: start})
	require.NoError(t, err)
	for i := range 30 {
		require.NoError(t, w.Add(newObject("", "v1", "ConfigMap", "configmaps", fmt.Sprintf("ns-%d", i%3), fmt.Sprintf("cm-%02d", i))))
	}
	require.NoError(t, w.Add(newObject("", "v1", "Namespace", "namespaces", "", "ns-0")))
	for _, version := range []string{"v1", "v2"} {
		require.NoError(t, w.Add(newObject("example.com", version, "Widget", "widgets", "ns-0", "w-"+version)))
	}
	for _, item := range linkedItems() {
		require.NoError(t, w.Add(item))
	}
	sealed, err := w.Seal()
	require.NoError(t, err)
	key := layout.Part("b", "uid", 1, "all", 0, 0)
	b.uploadFile(key, sealed.Data)
	b.uploadFile(layout.Sidecar(key), sealed.Sidecar)
	plan := assembly.Plan{
		Backup: "b", UID: "uid", ModTime: start, LogValue: "velero/b", Header: manifest.Header{Revision: "77"},
		Parts: []assembly.PartRef{{Key: key, Size: sealed.Data.Size, SHA256: sealed.Data.SHA256, SidecarKey: layout.Sidecar(key)}},
		Cuts:  []manifest.Cut{{Kind: "v1/ConfigMap", Revision: "77"}, {Kind: "example.com/v1/Widget", Revision: "80", From: "a", To: "z"}},
	}
	_, err = assembly.Compose(t.Context(), b.store, plan)
	require.NoError(t, err)
	merged, err := assembly.Merge(t.Context(), b.store, plan, dir)
	require.NoError(t, err)
	b.uploadFile(layout.BackupManifest("b"), merged.Manifest)
	return b
}

func newObject(group, version, kind, resource, ns, name string) part.Item {
	return part.Item{
		GVK: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, Resource: resource, Preferred: true, Raw: []byte(objectBody(ns, name)),
		Meta: &objmeta.Meta{Name: name, Namespace: ns, UID: "uid-" + name, ResourceVersion: "5"},
	}
}

func objectBody(ns, name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q},"data":%q}`, name, ns, strings.Repeat("x", 500))
}

func (b *bed) uploadFile(key string, f part.File) {
	b.t.Helper()
	data, err := os.ReadFile(f.Path)
	require.NoError(b.t, err)
	b.store.Set(key, data)
}

func TestGetManifest(t *testing.T) {
	b := newBed(t)
	got, err := b.s.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "b"})
	require.NoError(t, err)
	require.Equal(t, "b", got.GetBackup())
	require.Equal(t, "uid", got.GetBackupUid())
	require.Equal(t, manifest.FormatVersion, got.GetFormatVersion())
	require.EqualValues(t, 38, got.GetItems())
	require.Len(t, got.GetKinds(), 9)
	require.Equal(t, "deployments", got.GetKinds()[0].GetResource())
	require.Equal(t, "apps", got.GetKinds()[0].GetGroup())
	require.Len(t, got.GetCuts(), 2)
	require.Equal(t, "configmaps", got.GetCuts()[0].GetResource())
	require.Equal(t, "z", got.GetCuts()[1].GetLastKey())
	require.Equal(t, "80", got.GetCuts()[1].GetRevision())
	require.Empty(t, got.GetNamespaces(), "only on request")

	got, err = b.s.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "b", WithNamespaces: true})
	require.NoError(t, err)
	counts := ""
	for _, n := range got.GetNamespaces() {
		counts += fmt.Sprintf("%s:%d ", n.GetNamespace(), n.GetItems())
	}
	require.Equal(t, ":1 ns-0:12 ns-1:10 ns-2:10 shop:5 ", counts)
}

// listAll reads all pages and checks that no page is larger than asked for.
func (b *bed) listAll(req *manifestv1.ListItemsRequest) []string {
	b.t.Helper()
	var names []string
	for {
		resp, err := b.s.ListItems(b.t.Context(), req)
		require.NoError(b.t, err)
		if req.GetPageSize() > 0 {
			require.LessOrEqual(b.t, len(resp.GetItems()), int(req.GetPageSize()))
		}
		for _, item := range resp.GetItems() {
			names = append(names, item.GetNamespace()+"/"+item.GetName())
		}
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return names
		}
	}
}

func TestListItems(t *testing.T) {
	b := newBed(t)
	all := b.listAll(&manifestv1.ListItemsRequest{Backup: "b"})
	require.Len(t, all, 38)
	require.Equal(t, "shop/web", all[0])
	for _, size := range []int32{1, 7, 38, 1000} {
		require.Equal(t, all, b.listAll(&manifestv1.ListItemsRequest{Backup: "b", PageSize: size}), "pages of %d", size)
	}
	require.Len(t, b.listAll(&manifestv1.ListItemsRequest{Backup: "b", Kinds: []string{"cm"}, Namespace: "ns-1", PageSize: 3}), 10)
	require.Len(t, b.listAll(&manifestv1.ListItemsRequest{Backup: "b", Kinds: []string{"widgets.example.com"}}), 2)
	require.Equal(t, []string{"ns-2/cm-05"}, b.listAll(&manifestv1.ListItemsRequest{Backup: "b", Name: "cm-05"}))
	require.Empty(t, b.listAll(&manifestv1.ListItemsRequest{Backup: "b", Namespace: "absent"}))
}

func TestPageTokensAreChecked(t *testing.T) {
	b := newBed(t)
	first, err := b.s.ListItems(t.Context(), &manifestv1.ListItemsRequest{Backup: "b", PageSize: 1})
	require.NoError(t, err)
	for _, req := range []*manifestv1.ListItemsRequest{
		{Backup: "b", PageToken: "not base64!"}, {Backup: "b", PageToken: "bm8ganNvbg"},
		{Backup: "b", Namespace: "ns-0", PageToken: first.GetNextPageToken()},
	} {
		_, err = b.s.ListItems(t.Context(), req)
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, err, &field)
		require.Equal(t, "page_token", field.Field)
	}
}

func byName(kind, ns, name string) *manifestv1.GetItemRequest {
	return &manifestv1.GetItemRequest{Backup: "b", WithBody: true, Kind: kind, Namespace: ns, Name: name}
}

func TestGetItem(t *testing.T) {
	b := newBed(t)
	got, err := b.s.GetItem(t.Context(), byName("ConfigMap", "ns-1", "cm-07"))
	require.NoError(t, err)
	require.Contains(t, string(got.GetBody()), `"name":"cm-07"`)
	sum := sha256.Sum256(got.GetBody())
	require.Equal(t, sum[:], got.GetItem().GetSha256())
	require.EqualValues(t, len(got.GetBody()), got.GetItem().GetSize())
	require.Equal(t, "resources/configmaps/namespaces/ns-1/cm-07.json", got.GetItem().GetPath())

	got, err = b.s.GetItem(t.Context(), &manifestv1.GetItemRequest{Backup: "b", Uid: "uid-cm-07"})
	require.NoError(t, err)
	require.Equal(t, "cm-07", got.GetItem().GetName())
	require.Empty(t, got.GetBody(), "only on request")

	for kind, name := range map[string]string{"widget": "w-v1", "WIDGETS.example.com": "w-v2", "widgets.v2.example.com": "w-v2", "widgets.exam": "w-v1"} {
		got, err = b.s.GetItem(t.Context(), byName(kind, "ns-0", name))
		require.NoError(t, err, kind)
		require.Equal(t, name, got.GetItem().GetName())
	}

	for _, ns := range []string{"", "ns-0"} { // as kubectl ignores it
		got, err = b.s.GetItem(t.Context(), byName("ns", ns, "ns-0"))
		require.NoError(t, err)
		require.Empty(t, got.GetItem().GetNamespace())
	}

	for _, req := range []*manifestv1.GetItemRequest{
		byName("ConfigMap", "ns-1", "absent"), byName("Pod", "ns-1", "cm-07"), byName("widgets.v1.example.com", "ns-0", "w-v2"),
		{Backup: "b", Uid: "absent"},
	} {
		_, err = b.s.GetItem(t.Context(), req)
		require.ErrorIs(t, err, errgrpc.ErrNotFound)
	}
}

func TestFailuresHaveCodes(t *testing.T) {
	b := newBed(t)
	_, err := b.s.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "absent"})
	require.True(t, apierrors.IsNotFound(err))
	_, err = b.s.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "velero-made"})
	st, _ := errgrpc.Status(err)
	require.Equal(t, codes.NotFound, st.Code())
	require.Equal(t, "MANIFEST_NOT_FOUND", errgrpc.Reason(st.Err()))

	tar, _ := b.store.Bytes(layout.BackupTarball("b"))
	for i := range tar {
		tar[i] ^= 0x55
	}
	b.store.Set(layout.BackupTarball("b"), tar)
	_, err = b.s.GetItem(t.Context(), byName("ConfigMap", "ns-1", "cm-07"))
	require.ErrorIs(t, err, errgrpc.ErrCorrupt)

	b.store.Inject(func(memstore.Op, string) error { return objectstore.ErrAccess })
	_, err = b.s.GetManifest(t.Context(), &manifestv1.GetManifestRequest{Backup: "b"})
	require.ErrorIs(t, err, errgrpc.ErrUnavailable)
}
