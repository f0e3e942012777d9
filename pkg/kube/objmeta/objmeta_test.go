package objmeta_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

var _ labels.Labels = objmeta.Pairs{}

const sample = `{"name":"web-7d4f","generateName":"web-","namespace":"shop","uid":"u-1","resourceVersion":"99","creationTimestamp":"2026-01-02T03:04:05Z",` +
	`"deletionTimestamp":"2026-02-02T03:04:05Z","labels":{"app":"web","empty":""},"annotations":{"note":"a \"quoted\"\nline \u00e9","big":"` + "xxxxxxxxxxxxxxxxxxxxxxxx" + `"},` +
	`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u-0","controller":true,"blockOwnerDeletion":true},{"apiVersion":"v1","kind":"Node","name":"n","uid":"u-9"}],` +
	`"finalizers":["a/b","c"],"managedFields":[{"fieldsV1":{"f:metadata":{"f:labels":{"f:name":{}}}},"name":"not this"}]}`

func TestDecode(t *testing.T) {
	t.Parallel()
	var m objmeta.Meta
	require.NoError(t, objmeta.Decode([]byte(sample), &m))
	require.Equal(t, objmeta.Meta{
		Name: "web-7d4f", Namespace: "shop", UID: "u-1", ResourceVersion: "99", CreationTimestamp: "2026-01-02T03:04:05Z", DeletionTimestamp: "2026-02-02T03:04:05Z",
		Labels:      objmeta.Pairs{{Key: "app", Value: "web"}, {Key: "empty"}},
		Annotations: objmeta.Pairs{{Key: "note", Value: "a \"quoted\"\nline é"}, {Key: "big", Value: strings.Repeat("x", 24)}},
		Owners: []objmeta.Owner{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u-0", Controller: true, BlockOwnerDeletion: true},
			{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u-9"},
		},
		Finalizers: []string{"a/b", "c"},
	}, m)
	require.True(t, m.Deleting())
	kept := m.Labels.Get("app")
	require.NoError(t, objmeta.Decode([]byte(`{"name":"other","labels":{"app":"changed"}}`), &m))
	require.Equal(t, "web", kept, "strings outlive the next Decode")
	require.Equal(t, "other", m.Name)
	require.Empty(t, m.Owners)
	require.Empty(t, m.UID)
	require.False(t, m.Deleting())
}

func TestSelectorsMatchPairs(t *testing.T) {
	t.Parallel()
	selector, err := labels.Parse("app in (web,api),empty=,!missing")
	require.NoError(t, err)
	var m objmeta.Meta
	require.NoError(t, objmeta.Decode([]byte(sample), &m))
	require.True(t, selector.Matches(m.Labels))
	require.False(t, m.Labels.Has("missing"))
}

func TestNoMetadata(t *testing.T) {
	t.Parallel()
	m := objmeta.Meta{Name: "stale", Labels: objmeta.Pairs{{Key: "a"}}}
	for _, raw := range []string{"", "null", "{}", `{"labels":null,"name":null,"ownerReferences":null}`} {
		require.NoError(t, objmeta.Decode([]byte(raw), &m))
		require.Empty(t, m.Name)
		require.Empty(t, m.Labels)
	}
}

// TestLastOfEqualOwnerFieldsCounts: a null after a value used to leave the value.
func TestLastOfEqualOwnerFieldsCounts(t *testing.T) {
	t.Parallel()
	var m objmeta.Meta
	require.NoError(t, objmeta.Decode([]byte(`{"ownerReferences":[{"uid":"u-1","uid":null,"controller":true,"controller":null}]}`), &m))
	require.Equal(t, []objmeta.Owner{{}}, m.Owners)
}

// TestInvalidUTF8IsReplacedInKeysToo: a label's key used to keep the invalid byte.
func TestInvalidUTF8IsReplacedInKeysToo(t *testing.T) {
	t.Parallel()
	var m objmeta.Meta
	require.NoError(t, objmeta.Decode([]byte("{\"labels\":{\"\xb8\xb8k\":\"\xb8v\"}}"), &m))
	require.Equal(t, objmeta.Pairs{{Key: "\ufffd\ufffdk", Value: "\ufffdv"}}, m.Labels)
}

func TestInvalidFieldsAreNamed(t *testing.T) {
	t.Parallel()
	for raw, field := range map[string]string{
		`{"name":1}`: "metadata.name", `{"labels":[]}`: "metadata.labels", `{"labels":{"a":1}}`: `metadata.labels: "a"`, `{"annotations":"x"}`: "metadata.annotations",
		`{"ownerReferences":{}}`: "metadata.ownerReferences", `{"ownerReferences":[{"uid":{}}]}`: "uid", `{"finalizers":[1]}`: "metadata.finalizers", `[]`: "invalid metadata", `{"name":`: "invalid metadata",
	} {
		var m objmeta.Meta
		err := objmeta.Decode([]byte(raw), &m)
		require.ErrorIs(t, err, objmeta.ErrInvalid, raw)
		require.ErrorContains(t, err, field)
	}
}

// FuzzDecode holds Decode against encoding/json, field by field: names are those of the Kubernetes
// API to the letter (decoding into the Kubernetes type itself would also take "UID" for "uid").
func FuzzDecode(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(`{"labels":{"a":"1","a":"2","\u0062":"x\ud800"},"name":"\u0000"}`))
	f.Add([]byte(`{"ownerReferences":[{"controller":null}],"finalizers":["\n"]}`))
	f.Add([]byte("{\"labels\":{\"\xb8\":\"0\"},\"ownerReferenCes\":[{}]}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m objmeta.Meta
		var err error
		require.Less(t, allocatedBytes(func() { err = objmeta.Decode(raw, &m) }), uint64(256<<10+120*len(raw)), "memory")
		if !json.Valid(raw) {
			return // checked by jsonlist before; here it only must not panic
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(raw, &want) != nil {
			require.Error(t, err, "no object")
		}
		if err != nil {
			return
		}
		for name, got := range map[string]string{
			"name": m.Name, "namespace": m.Namespace, "uid": m.UID, "resourceVersion": m.ResourceVersion,
			"creationTimestamp": m.CreationTimestamp, "deletionTimestamp": m.DeletionTimestamp,
		} {
			require.Equal(t, decodeAs[string](t, want[name]), got, name)
		}
		requireMap(t, decodeAs[map[string]string](t, want["labels"]), m.Labels)
		requireMap(t, decodeAs[map[string]string](t, want["annotations"]), m.Annotations)
		require.ElementsMatch(t, decodeAs[[]string](t, want["finalizers"]), m.Finalizers)
		requireOwners(t, decodeAs[[]map[string]json.RawMessage](t, want["ownerReferences"]), m.Owners)
	})
}

// decodeAs decodes what Decode has accepted; nil and null are the zero value.
func decodeAs[T any](t *testing.T, raw []byte) (v T) {
	t.Helper()
	if raw != nil {
		require.NoError(t, json.Unmarshal(raw, &v), "accepted what is no %T: %s", v, raw)
	}
	return v
}

func requireOwners(t *testing.T, want []map[string]json.RawMessage, got []objmeta.Owner) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		for name, text := range map[string]string{"apiVersion": got[i].APIVersion, "kind": got[i].Kind, "name": got[i].Name, "uid": got[i].UID} {
			require.Equal(t, decodeAs[string](t, w[name]), text, name)
		}
		require.Equal(t, string(w["controller"]) == "true", got[i].Controller)
		require.Equal(t, string(w["blockOwnerDeletion"]) == "true", got[i].BlockOwnerDeletion)
	}
}

func requireMap(t *testing.T, want map[string]string, got objmeta.Pairs) {
	t.Helper()
	m := got.Map()
	require.Len(t, m, len(want))
	for k, v := range want {
		require.Equal(t, v, m[k])
	}
}

// Ten million empty owners are thirty megabytes of JSON and were a gigabyte in memory.
func TestEntriesAreBounded(t *testing.T) {
	for field, one := range map[string]string{"ownerReferences": "{}", "finalizers": `""`, "labels": `"a":""`, "annotations": `"a":""`} {
		for n, want := range map[int]error{50_000: nil, 50_001: objmeta.ErrInvalid} {
			list := strings.Repeat(one+",", n-1) + one
			if field == "labels" || field == "annotations" {
				list = "{" + list + "}"
			} else {
				list = "[" + list + "]"
			}
			var m objmeta.Meta
			err := objmeta.Decode([]byte(`{"`+field+`":`+list+`}`), &m)
			require.ErrorIs(t, err, want)
			if want != nil {
				require.ErrorContains(t, err, "metadata."+field+": more than 50000 entries")
			}
		}
	}
}

// allocatedBytes is how many bytes fn takes.
func allocatedBytes(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
