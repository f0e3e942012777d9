package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

const secretBody = `{"type":"Opaque","immutable":false,"metadata":{"name":"db","namespace":"shop","generation":9007199254740993,` +
	`"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"CANARY-1","meta.helm.sh/release-name":"shop","note":"CANARY-2"}},` +
	`"data":{"password":"CANARY-3","user":"CANARY-4"},"stringData":{"token":"CANARY-5"},"unknown":{"deep":["CANARY-6"]},"more":"CANARY-7"}`

// linkedItems are objects with labels, annotations, owners and references.
func linkedItems() []part.Item {
	web := newObject("apps", "v1", "Deployment", "deployments", "shop", "web")
	web.Meta.Labels = objmeta.Pairs{{Key: "app", Value: "web"}, {Key: "tier", Value: "front"}}
	web.Meta.Annotations = objmeta.Pairs{{Key: "team", Value: "a"}, {Key: "kubectl.kubernetes.io/last-applied-configuration", Value: "{}"}}
	web.References = []manifest.Reference{{Kind: "Secret", Namespace: "shop", Name: "db", Relation: "reads"}}
	set := newObject("apps", "v1", "ReplicaSet", "replicasets", "shop", "web-1")
	set.Meta.Labels = objmeta.Pairs{{Key: "app", Value: "web"}}
	set.Meta.Owners = []objmeta.Owner{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-web", Controller: true}}
	secret := newObject("", "v1", "Secret", "secrets", "shop", "db")
	secret.Raw = []byte(secretBody)
	secret.Meta.Annotations = objmeta.Pairs{
		{Key: "kubectl.kubernetes.io/last-applied-configuration", Value: "CANARY-1"}, {Key: "meta.helm.sh/release-name", Value: "shop"}, {Key: "note", Value: "CANARY-2"},
	}
	return []part.Item{
		web, set, secret,
		newObject("networking.k8s.io", "v1", "Ingress", "ingresses", "shop", "web-in"),
		newObject("extensions.example.com", "v1", "Ingress", "ingresses", "shop", "other-in"),
	}
}

func TestListItemsFilters(t *testing.T) {
	b := newBed(t)
	empty := "{}"
	for _, tc := range []struct {
		req  *manifestv1.ListItemsRequest
		want []string
	}{
		{&manifestv1.ListItemsRequest{Kinds: []string{"deploy", "Secret"}}, []string{"shop/web", "shop/db"}},
		{&manifestv1.ListItemsRequest{Kinds: []string{"ingress.networking"}}, []string{"shop/web-in"}},
		{&manifestv1.ListItemsRequest{Name: "web*"}, []string{"shop/web", "shop/web-1", "shop/web-in"}},
		{&manifestv1.ListItemsRequest{Name: "web-?"}, []string{"shop/web-1"}},
		{&manifestv1.ListItemsRequest{Name: "cm-0[34]", Namespace: "ns-1"}, []string{"ns-1/cm-04"}},
		{&manifestv1.ListItemsRequest{LabelSelector: "app=web"}, []string{"shop/web", "shop/web-1"}},
		{&manifestv1.ListItemsRequest{LabelSelector: "app=web,tier"}, []string{"shop/web"}},
		{&manifestv1.ListItemsRequest{Name: "web", LabelSelector: "app in (web),tier==front"}, []string{"shop/web"}},
		{&manifestv1.ListItemsRequest{LabelSelector: "app in (web,other),tier!=front"}, []string{"shop/web-1"}},
		{&manifestv1.ListItemsRequest{LabelSelector: "tier notin (front),app"}, []string{"shop/web-1"}},
		{&manifestv1.ListItemsRequest{Name: "we[b]", LabelSelector: "app=web"}, []string{"shop/web"}},
		{&manifestv1.ListItemsRequest{Annotations: []string{"team"}}, []string{"shop/web"}},
		{&manifestv1.ListItemsRequest{Annotations: []string{"team=b"}}, nil},
		{&manifestv1.ListItemsRequest{Annotations: []string{"note"}}, []string{"shop/db"}},
		{&manifestv1.ListItemsRequest{Annotations: []string{"team=a", "kubectl.kubernetes.io/last-applied-configuration=" + empty}}, []string{"shop/web"}},
		{&manifestv1.ListItemsRequest{Annotations: []string{"kubectl.kubernetes.io/last-applied-configuration=other"}}, nil},
		{&manifestv1.ListItemsRequest{Owner: "uid-web"}, []string{"shop/web-1"}},
		{&manifestv1.ListItemsRequest{Owner: "deployments.apps/web"}, []string{"shop/web-1"}},
		{&manifestv1.ListItemsRequest{Owner: "deploy/other"}, nil},
		{&manifestv1.ListItemsRequest{Owner: "deploymnet/web"}, nil},
		{&manifestv1.ListItemsRequest{Uid: "uid-web"}, []string{"shop/web"}},
		{&manifestv1.ListItemsRequest{Uid: "uid-web", Kinds: []string{"secrets"}}, nil},
		{&manifestv1.ListItemsRequest{Uid: "uid-web", Namespace: "ns-1"}, nil},
		{&manifestv1.ListItemsRequest{Uid: "uid-web", Name: "x"}, nil},
		{&manifestv1.ListItemsRequest{Uid: "absent"}, nil},
		{&manifestv1.ListItemsRequest{Namespace: "shop", WithClusterScoped: true, Name: "[^d]*-0"}, []string{"/ns-0"}},
	} {
		tc.req.Backup = "b"
		require.Equal(t, tc.want, b.listAll(tc.req), "%v", tc.req)
	}
	found, err := b.s.ListItems(t.Context(), &manifestv1.ListItemsRequest{Backup: "b", Uid: "uid-web"})
	require.NoError(t, err)
	sum := found.GetItems()[0].GetSha256()
	require.Equal(t, []string{"shop/web"}, b.listAll(&manifestv1.ListItemsRequest{Backup: "b", Hash: hexPrefix(sum)}))
	require.Equal(t, []string{"shop/web"}, b.listAll(&manifestv1.ListItemsRequest{Backup: "b", Kinds: []string{"deploy"}, Hash: hexPrefix(found.GetItems()[0].GetContentHash())}))
	require.Equal(t, "length:2 sha256:", found.GetItems()[0].GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"][:16])

	found, err = b.s.ListItems(t.Context(), &manifestv1.ListItemsRequest{Backup: "b", Kinds: []string{"deploy", "rs"}})
	require.NoError(t, err)
	require.Equal(t, "reads", found.GetItems()[0].GetReferences()[0].GetRelation())
	owner := found.GetItems()[1].GetOwners()[0]
	require.Equal(t, []string{"apps/v1", "Deployment", "web", "uid-web"}, []string{owner.GetApiVersion(), owner.GetKind(), owner.GetName(), owner.GetUid()})
	require.True(t, owner.GetController())
}

func hexPrefix(sum []byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[sum[0]>>4], digits[sum[0]&15], digits[sum[1]>>4], digits[sum[1]&15], digits[sum[2]>>4]})
}

// An owner may be what the backup left out: a Node, or an object of another namespace's operator.
func TestOwnersOutsideOfTheBackupAreFound(t *testing.T) {
	b := newDiffBed(t, manifest.Header{}, map[string][]string{"old": {
		`Pod.v1. {"metadata":{"name":"p","namespace":"shop","ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"u1"}]}}`,
		`Pod.v1. {"metadata":{"name":"q","namespace":"shop","ownerReferences":[{"apiVersion":"kafka.io/v1","kind":"StatefulSet","name":"db","uid":"u2"}]}}`,
	}, "new": {`Pod.v1. {"metadata":{"name":"p"}}`}})
	for owner, want := range map[string][]string{
		"StatefulSet/db": {"shop/p", "shop/q"}, "sts/db": {"shop/p", "shop/q"}, "statefulsets.apps/db": {"shop/p"},
		"statefulset.v1.kafka.io/db": {"shop/q"}, "StatefulSet/other": nil, "Deployment/db": nil,
	} {
		require.Equal(t, want, b.listAll(&manifestv1.ListItemsRequest{Backup: "old", Owner: owner}), owner)
	}
}

func TestWrongFiltersNameTheirField(t *testing.T) {
	b := newBed(t)
	for field, req := range map[string]*manifestv1.ListItemsRequest{
		"name": {Name: "a["}, "label_selector": {LabelSelector: "a in ("}, "annotations": {Annotations: []string{"=v"}}, "owner": {Owner: "/web"}, "kinds": {Kinds: []string{"ing"}},
	} {
		req.Backup = "b"
		_, err := b.s.ListItems(t.Context(), req)
		found := new(errgrpc.FieldError)
		require.ErrorAs(t, err, &found, field)
		require.Equal(t, field, found.Field)
	}
	_, err := b.s.ListItems(t.Context(), &manifestv1.ListItemsRequest{Backup: "b", Kinds: []string{"ing"}})
	require.ErrorContains(t, err, "ingresses.extensions.example.com, ingresses.networking.k8s.io")
	_, err = b.s.ListItems(t.Context(), &manifestv1.ListItemsRequest{Backup: "b", Kinds: []string{"pods"}})
	require.ErrorIs(t, err, errgrpc.ErrNotFound)
	require.ErrorContains(t, err, `backup "b" holds no object of kind "pods"`)
	for field, req := range map[string]*manifestv1.GetItemRequest{"uid": {Uid: "u", Name: "n"}, "kind": {Name: "n"}, "name": {Kind: "pod"}} {
		_, err := b.s.GetItem(t.Context(), req)
		found := new(errgrpc.FieldError)
		require.ErrorAs(t, err, &found, field)
		require.Equal(t, field, found.Field)
	}
}

func TestTheCoreGroupGoesBeforeOthers(t *testing.T) {
	kinds := []manifest.KindInfo{{Kind: "events.k8s.io/v1/Event", Resource: "events.events.k8s.io"}, {Kind: "v1/Event", Resource: "events"}, {Kind: "v2/Event", Resource: "events", Preferred: true}}
	found, err := findKinds(kinds, "kind", "ev")
	require.NoError(t, err)
	require.Equal(t, []manifest.KindInfo{kinds[2], kinds[1]}, found)
	found, err = findKinds(kinds, "kind", "events.v1.")
	require.NoError(t, err)
	require.Equal(t, kinds[1:2], found)
}

// Nobody sees the value of a Secret who does not ask for it with a right of its own.
func TestSecretsAreMasked(t *testing.T) {
	b := newBed(t)
	got, err := b.s.GetItem(t.Context(), byName("secret", "shop", "db"))
	require.NoError(t, err)
	require.True(t, got.GetMasked())
	require.NotContains(t, got.String(), "CANARY")
	require.JSONEq(t, `{"apiVersion":"v1","kind":"Secret","type":"Opaque","immutable":false,"metadata":{"name":"db","namespace":"shop","generation":9007199254740993,
		"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"***","meta.helm.sh/release-name":"shop","note":"***"}},
		"data":{"password":"***","user":"***"},"stringData":{"token":"***"},"unknown":{"deep":"***"},"more":"***"}`, string(got.GetBody()))
	require.Contains(t, string(got.GetBody()), "9007199254740993")

	whole, err := b.s.GetUnmaskedItem(t.Context(), &manifestv1.GetUnmaskedItemRequest{Backup: "b", Kind: "secret", Namespace: "shop", Name: "db"})
	require.NoError(t, err)
	require.Equal(t, `{"apiVersion":"v1","kind":"Secret",`+secretBody[1:], string(whole.GetBody()))
	require.Equal(t, "db", whole.GetItem().GetName())

	got, err = b.s.GetItem(t.Context(), byName("deploy", "shop", "web"))
	require.NoError(t, err)
	require.False(t, got.GetMasked())
	require.True(t, json.Valid(got.GetBody()))
}

// Whoever has the hash of a short value finds the value by guessing.
func TestHashesOfASecretAreMasked(t *testing.T) {
	b := newBed(t)
	whole, err := b.s.GetUnmaskedItem(t.Context(), &manifestv1.GetUnmaskedItemRequest{Backup: "b", Kind: "secret", Namespace: "shop", Name: "db"})
	require.NoError(t, err)
	require.NotEmpty(t, whole.GetItem().GetSha256())
	require.NotEmpty(t, whole.GetItem().GetContentHash())
	require.Contains(t, whole.GetItem().GetAnnotations()["note"], "sha256:")
	got, err := b.s.GetItem(t.Context(), byName("secret", "shop", "db"))
	require.NoError(t, err)
	items := []*manifestv1.Item{got.GetItem()}
	for _, req := range []*manifestv1.ListItemsRequest{{Backup: "b", Uid: "uid-db"}, {Backup: "b", Kinds: []string{"secret"}}} {
		found, err := b.s.ListItems(t.Context(), req)
		require.NoError(t, err)
		items = append(items, found.GetItems()...)
	}
	require.Len(t, items, 3)
	for _, i := range items {
		require.Empty(t, i.GetSha256())
		require.Empty(t, i.GetContentHash())
		require.Equal(t, "length:8", i.GetAnnotations()["note"])
		require.Equal(t, "shop", i.GetAnnotations()["meta.helm.sh/release-name"])
	}
	for _, req := range []*manifestv1.ListItemsRequest{
		{Hash: hexPrefix(whole.GetItem().GetSha256())}, {Hash: hexPrefix(whole.GetItem().GetContentHash())}, {Annotations: []string{"note=CANARY-2"}},
		{Uid: "uid-db", Hash: hexPrefix(whole.GetItem().GetSha256())}, {Uid: "uid-db", Annotations: []string{"note=CANARY-2"}},
	} {
		req.Backup = "b"
		require.Empty(t, b.listAll(req), req)
	}
}

func TestAnOddSecretIsMaskedWhole(t *testing.T) {
	for body, want := range map[string]string{
		`{"kind":"Secret","metadata":"CANARY","data":"CANARY"}`:                               `{"kind":"Secret","metadata":"***","data":"***"}`,
		`{"metadata":{"annotations":["CANARY"]},"data":{"a":{"b":"CANARY"}},"DATA":"CANARY"}`: `{"metadata":{"annotations":"***"},"data":{"a":"***"},"DATA":"***"}`,
	} {
		got, err := maskSecret([]byte(body), &manifest.Item{})
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
	}
	_, err := maskSecret([]byte(`{"data":`), &manifest.Item{})
	require.ErrorIs(t, err, errgrpc.ErrCorrupt)
}

// An item costs two ranges of the manifest and one of the tarball.
func TestAnItemIsThreeRangeReads(t *testing.T) {
	b := newBed(t)
	reads := map[string]int{}
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpGet {
			reads[key]++
		}
		return nil
	})
	_, err := b.s.GetItem(t.Context(), byName("deploy", "shop", "web"))
	require.NoError(t, err)
	require.Equal(t, map[string]int{layout.BackupManifest("b"): 2, layout.BackupTarball("b"): 1}, reads)
}

// Clients take messages of 4 MiB; a page of items with many references is shorter than asked for.
func TestPagesFitIntoAMessage(t *testing.T) {
	var out bytes.Buffer
	w, err := manifest.NewWriter(&out, manifest.Header{Backup: "large"}, t.TempDir())
	require.NoError(t, err)
	long := strings.Repeat("x", 250)
	for i := range 40 {
		meta := &objmeta.Meta{Name: fmt.Sprintf("b-%02d", i)}
		entry := &manifest.Entry{Version: "v1", Kind: "Binding", Resource: "bindings", Preferred: true, Path: "resources/bindings/cluster/" + meta.Name + ".json", Meta: meta}
		for range 1000 {
			entry.References = append(entry.References, manifest.Reference{Kind: "ServiceAccount", Namespace: "n", Name: long, Relation: "grantsTo"})
		}
		require.NoError(t, w.Add(manifest.Record{
			Key: manifest.AppendKey(nil, "v1/Binding", "", meta.Name), Path: []byte(entry.Path), Entry: manifest.AppendEntry(nil, entry), Length: 1,
		}))
	}
	require.NoError(t, w.Close(manifest.Trailer{}))
	reader, err := manifest.Open(t.Context(), memoryRanges(out.Bytes()), int64(out.Len()))
	require.NoError(t, err)
	m, req, found := &openManifestFile{Reader: reader}, &manifestv1.ListItemsRequest{Backup: "large", PageSize: 1000}, 0
	matcher, err := newItemMatcher(req, reader.Kinds())
	require.NoError(t, err)
	for more := true; more; more = req.GetPageToken() != "" {
		after, err := decodeToken(req)
		require.NoError(t, err)
		page, err := m.listPage(t.Context(), req, manifest.Filter{After: after}, matcher)
		require.NoError(t, err)
		require.Less(t, proto.Size(page), 4<<20)
		found += len(page.GetItems())
		req.PageToken = page.GetNextPageToken()
	}
	require.Equal(t, 40, found)
}

// memoryRanges is a file in memory.
type memoryRanges []byte

func (m memoryRanges) ReadRange(_ context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m[off : off+n])), nil
}
