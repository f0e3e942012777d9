package manifest_test

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// hashBody returns the content hash of a compact body in hex, "" if it has none.
func hashBody(t testing.TB, group, kind string, body []byte) string {
	t.Helper()
	item, err := jsonlist.ParseObject(body)
	if err != nil || item.Spaced {
		return ""
	}
	c := manifest.Content{Group: group, Kind: kind, Body: item.Raw, Meta: &objmeta.Meta{}, Envelope: item.Envelope}
	if err := objmeta.Decode(item.Metadata, c.Meta); err != nil {
		return ""
	}
	h := manifest.NewContentHasher()
	hash := hex.EncodeToString(h.HashContent(&c))
	c.Envelope = jsonlist.Envelope{}
	require.Equal(t, hash, hex.EncodeToString(h.HashContent(&c)), "by a walk: %s", body)
	return hash
}

// contentHash returns the hash of a body that has one.
func contentHash(t testing.TB, group, kind, body string) string {
	t.Helper()
	hash := hashBody(t, group, kind, []byte(body))
	require.Len(t, hash, 2*manifest.ContentHashBytes, body)
	return hash
}

func TestContentHashFollowsWhatARestoreCompares(t *testing.T) {
	t.Parallel()
	const base = `{"apiVersion":"v1","kind":"K","metadata":{"name":"x","labels":{"a":"b"},"annotations":{"c":"d"},"finalizers":["f"]},"spec":{"n":1},"data":{"k":"v"},"status":{"x":1}}`
	want := contentHash(t, "g", "K", base)
	for _, same := range []string{
		strings.Replace(base, `"status":{"x":1}`, `"status":{"x":2,"y":[]}`, 1),
		strings.Replace(base, `,"status":{"x":1}`, ``, 1),
		strings.Replace(base, `"apiVersion":"v1","kind":"K",`, ``, 1),
		strings.Replace(base, `"v1"`, `"v2"`, 1),
		strings.Replace(base, `"name":"x"`, `"name":"x","uid":"1","resourceVersion":"7","generation":3,"creationTimestamp":"t","managedFields":[{"a":{}}],"ownerReferences":[{"kind":"O","name":"o","uid":"u","apiVersion":"v1"}]`, 1),
		strings.Replace(base, `"a":"b"`, `"a":"b","velero.io/restore-name":"r"`, 1),
		`{"kind":"K","apiVersion":"v1",` + base[len(`{"apiVersion":"v1","kind":"K",`):],
	} {
		require.Equal(t, want, contentHash(t, "g", "K", same), same)
	}
	for _, other := range []string{
		strings.Replace(base, `"n":1`, `"n":2`, 1), strings.Replace(base, `"k":"v"`, `"k":"w"`, 1), strings.Replace(base, `"a":"b"`, `"a":"c"`, 1),
		strings.Replace(base, `"a":"b"`, `"ab":""`, 1), strings.Replace(base, `"c":"d"`, `"c":"e"`, 1), strings.Replace(base, `["f"]`, `[]`, 1),
		strings.Replace(base, `"labels"`, `"annotations"`, 1), strings.Replace(base, `,"data":{"k":"v"}`, ``, 1),
		strings.Replace(base, `"spec":{"n":1},"data":{"k":"v"}`, `"spec":{"n":1,"data":{"k":"v"}}`, 1), base[:len(base)-1] + `,"more":true}`,
	} {
		require.NotEqual(t, want, contentHash(t, "g", "K", other), other)
	}
}

func TestContentHashLeavesOutWhatARestoreResetsInAKind(t *testing.T) {
	t.Parallel()
	lease := func(spec string) string {
		return contentHash(t, "coordination.k8s.io", "Lease", `{"metadata":{"name":"x"},"spec":{`+spec+`}}`)
	}
	require.Equal(t, lease(`"leaseDurationSeconds":15`), lease(`"holderIdentity":"a","leaseDurationSeconds":15,"renewTime":"t"`))
	require.NotEqual(t, lease(`"leaseDurationSeconds":15`), lease(`"leaseDurationSeconds":16`))
	require.Equal(t, contentHash(t, "coordination.k8s.io", "Lease", `{"metadata":{"name":"x"}}`), lease(`"renewTime":null,"holderIdentity":"a"`))
	require.Equal(t, contentHash(t, "", "PersistentVolume", `{"metadata":{},"spec":{"claimRef":{"name":"c"}},"x":1}`),
		contentHash(t, "", "PersistentVolume", `{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"claimRef":{"uid":"1","name":"c"}},"x":1}`))
	require.NotEqual(t, contentHash(t, "", "PersistentVolume", `{"spec":{"claimRef":"c"}}`), contentHash(t, "", "PersistentVolume", `{"spec":{"claimRef":"d"}}`))
	require.NotEqual(t, contentHash(t, "g", "Lease", `{"spec":{"renewTime":"1"}}`), contentHash(t, "g", "Lease", `{"spec":{"renewTime":"2"}}`))
}

func TestContentHashOfNoObject(t *testing.T) {
	t.Parallel()
	require.Nil(t, manifest.NewContentHasher().HashContent(&manifest.Content{Body: []byte(`{"a"`), Meta: &objmeta.Meta{}}))
}

// FuzzContentHash compares the two ways to a hash, and what a hash ignores with what DropIgnored
// removes: bodies that are equal without it have one hash. What a hash allocates follows the length of
// the body.
func FuzzContentHash(f *testing.F) {
	f.Add(`{"metadata":{"name":"x","labels":{"a":"b"},"uid":"1"},"spec":{"n":1},"status":{}}`, "", "Pod")
	f.Add(`{"spec":{"holderIdentity":"a","n":{}},"metadata":{"annotations":{"control-plane.alpha.kubernetes.io/leader":"x"}}}`, "coordination.k8s.io", "Lease")
	f.Add(`{"status":1,"status":2,"kind":"","metadata":null,"spec":{"selector":{"matchLabels":{"controller-uid":"x"}}}}`, "batch", "Job")
	f.Fuzz(func(t *testing.T, body, group, kind string) {
		hash := ""
		require.Less(t, limittest.Allocated(func() {
			_ = manifest.NewContentHasher().HashContent(&manifest.Content{Group: group, Kind: kind, Body: []byte(body), Meta: &objmeta.Meta{}})
			hash = hashBody(t, group, kind, []byte(body))
		}), uint64(1<<20+1000*len(body)))
		if hash == "" {
			return
		}
		var obj, plain map[string]any
		if !strings.ContainsAny(body, ".\\eE") && json.Unmarshal([]byte(body), &obj) == nil && !repeatsField([]byte(body)) {
			require.NoError(t, json.Unmarshal([]byte(body), &plain))
			manifest.DropIgnored(plain, group, kind)
			text, err := json.Marshal(obj)
			require.NoError(t, err)
			rest, err := json.Marshal(plain)
			require.NoError(t, err)
			require.Equal(t, hashBody(t, group, kind, text), hashBody(t, group, kind, rest), "%s", rest)
		}
	})
}

// repeatsField reports that an object has a field twice.
func repeatsField(body []byte) bool {
	seen := map[string]bool{}
	for f := rawjson.ObjectFields(body); f.Next(); {
		if seen[string(f.Key)] {
			return true
		}
		seen[string(f.Key)] = true
	}
	return false
}

// BenchmarkContentHash is what the hash adds to the backup of an object of 4 KiB, beside the split of
// the list into its items.
func BenchmarkContentHash(b *testing.B) {
	body := []byte(`{"metadata":{"name":"x","namespace":"ns","uid":"1","labels":{"app":"x","tier":"db"},"managedFields":[` + strings.Repeat(`{"f:spec":{"f:a":{}}},`, 50) +
		`{}]},"spec":{"list":[` + strings.Repeat(`{"name":"something","value":"other"},`, 50) + `{}]},"status":{"conditions":[` + strings.Repeat(`{"type":"Ready"},`, 20) + `{}]}}`)
	item, err := jsonlist.ParseObject(body)
	require.NoError(b, err)
	var meta objmeta.Meta
	require.NoError(b, objmeta.Decode(item.Metadata, &meta))
	b.Run("split", func(b *testing.B) {
		for b.Loop() {
			_, _ = jsonlist.ParseObject(body)
		}
	})
	for name, envelope := range map[string]jsonlist.Envelope{"hash": item.Envelope, "hash by walk": {}} {
		b.Run(name, func(b *testing.B) {
			h := manifest.NewContentHasher()
			for b.Loop() {
				_ = h.HashContent(&manifest.Content{Kind: "Pod", Body: body, Meta: &meta, Envelope: envelope})
			}
		})
	}
}
