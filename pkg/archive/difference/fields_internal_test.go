package difference

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// compareTexts returns in which fields two bodies of an object differ.
func compareTexts(item *manifest.Item, from, to []byte) ([]*manifestv1.FieldDifference, error) {
	d := fieldDifferences{isHidden: hiddenFields(manifest.Pair{A: item, B: item})}
	err := d.compareBodies(from, to, item)
	return d.list, err
}

func pathsOf(list []*manifestv1.FieldDifference) (paths []string) {
	for _, f := range list {
		paths = append(paths, f.GetPath())
	}
	return paths
}

func hashText(t *testing.T, item *manifest.Item, body []byte) string {
	t.Helper()
	parsed, err := jsonlist.ParseObject(body)
	require.NoError(t, err)
	meta := &objmeta.Meta{}
	require.NoError(t, objmeta.Decode(parsed.Metadata, meta))
	return string(manifest.NewContentHasher().HashContent(&manifest.Content{Group: item.Group, Kind: item.Kind, Body: parsed.Raw, Meta: meta, Envelope: parsed.Envelope}))
}

// randomValue is anything that JSON has, with names that rules leave out of some kinds.
func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case n < 3 && depth < 4:
		value := map[string]any{}
		for _, name := range []string{"a", "selector", "matchLabels", "controller-uid", "claimRef", "uid", "renewTime"} {
			if r.IntN(2) == 0 {
				value[name] = randomValue(r, depth+1)
			}
		}
		return value
	case n == 3 && depth < 4:
		list := []any{}
		for i := range r.IntN(3) {
			list = append(list, map[string]any{"name": fmt.Sprint(i), "v": randomValue(r, depth+1)})
		}
		return list
	case n == 4:
		return nil
	}
	return r.IntN(2)
}

func randomObject(r *rand.Rand) map[string]any {
	pairs := func() map[string]any {
		value := map[string]any{}
		for _, name := range []string{"app", "velero.io/backup-name", "pv.kubernetes.io/bind-completed", "controller-uid"} {
			if r.IntN(2) == 0 {
				value[name] = fmt.Sprint(r.IntN(2))
			}
		}
		return value
	}
	return map[string]any{
		"metadata": map[string]any{"name": "x", "namespace": "n", "resourceVersion": fmt.Sprint(r.IntN(9)), "labels": pairs(), "annotations": pairs()},
		"spec":     randomValue(r, 0), "status": randomValue(r, 0), "data": randomValue(r, 2),
	}
}

// Fields are listed where the content hashes differ, and nowhere else; they are the same both ways.
func TestFieldsDifferWhereContentHashesDo(t *testing.T) {
	t.Parallel()
	equal := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		item := []*manifest.Item{{Kind: "ConfigMap"}, {Group: "batch", Kind: "Job"}, {Group: "coordination.k8s.io", Kind: "Lease"}, {Kind: "PersistentVolume"}, {Kind: "Secret"}}[r.IntN(5)]
		a := randomObject(r)
		b := randomObject(r)
		for _, field := range []string{"metadata", "spec", "data"} {
			if r.IntN(4) > 0 {
				b[field] = a[field]
			}
		}
		from, err := json.Marshal(a)
		require.NoError(t, err)
		to, err := json.Marshal(b)
		require.NoError(t, err)
		there, err := compareTexts(item, from, to)
		require.NoError(t, err)
		back, err := compareTexts(item, to, from)
		require.NoError(t, err)
		require.Equal(t, pathsOf(there), pathsOf(back))
		same := hashText(t, item, from) == hashText(t, item, to)
		require.Equal(t, same, len(there) == 0, "seed %d, %s\n%s\n%s\n%v", seed, item.Kind, from, to, there)
		if same {
			equal++
		}
	}
	require.Greater(t, equal, 300)
}

// A body of a few kilobytes may be nested ten thousand deep.
func TestADeepObjectCostsBoundedMemory(t *testing.T) {
	deep := func(leaf string) []byte {
		const depth = 9000
		return []byte(`{"metadata":{"name":"x"},"spec":` + strings.Repeat(`{"a":`, depth) + leaf + strings.Repeat("}", depth) + "}")
	}
	var list []*manifestv1.FieldDifference
	var err error
	require.Less(t, limittest.Allocated(func() { list, err = compareTexts(&manifest.Item{Kind: "Widget"}, deep("1"), deep("2")) }), uint64(64<<20))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.LessOrEqual(t, len(list[0].GetPath()), MaxValue)
}

// FuzzCompareBodies: what two bodies cost and what is sent of them is bounded, and no value of a Secret is shown.
func FuzzCompareBodies(f *testing.F) {
	f.Add([]byte(`{"metadata":{"annotations":{"a":"1"}},"data":{"a":"b"}}`), []byte(`{"metadata":{"labels":{"a":"1"}},"data":{"a":"c"},"type":"x"}`))
	f.Add([]byte(`{"spec":[{"name":"a","v":1},{"name":"b"}]}`), []byte(`{"spec":[{"name":"b"},{"name":"a","v":[]}]}`))
	f.Add([]byte(`{"metadata":1,"spec":null}`), []byte(`{"metadata":{"annotations":[1]}}`))
	f.Fuzz(func(t *testing.T, from, to []byte) {
		for _, item := range []*manifest.Item{{Kind: "Widget"}, {Kind: "Secret", Resource: "secrets"}} {
			var list []*manifestv1.FieldDifference
			var err error
			require.Less(t, limittest.Allocated(func() { list, err = compareTexts(item, from, to) }), uint64(32<<20+20_000*(len(from)+len(to))))
			if err != nil {
				continue
			}
			require.LessOrEqual(t, len(list), MaxFields)
			for _, field := range list {
				require.LessOrEqual(t, max(len(field.GetPath()), len(field.GetFrom()), len(field.GetTo())), MaxValue+40)
				shown := field.GetPath() == "type" || field.GetPath() == "immutable" || strings.HasPrefix(field.GetPath(), "type") || strings.HasPrefix(field.GetPath(), "immutable") || strings.HasPrefix(field.GetPath(), "metadata")
				require.True(t, field.GetMasked() || shown || item.Kind == "Widget", field.GetPath())
			}
			same, err := compareTexts(item, from, from)
			require.NoError(t, err)
			require.Empty(t, same)
		}
	})
}
