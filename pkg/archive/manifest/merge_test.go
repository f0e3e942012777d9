package manifest_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// version is one object of a random manifest: content is 0 where the hash is unknown.
type version struct {
	key             manifest.ObjectKey
	version         string
	content, status int
}

// openVersions writes objects into a manifest and opens it.
func openVersions(t *testing.T, objects map[manifest.ObjectKey]version, more ...version) (*manifest.Reader, *memory) {
	t.Helper()
	var entries []*manifest.Entry
	for _, o := range append(slices.Collect(maps.Values(objects)), more...) {
		e := testObject{o.key.Group, o.key.Kind, o.key.Kind + "s", o.key.Namespace, o.key.Name}.manifestEntry(len(entries))
		e.Version, e.SHA256 = o.version, sha256.Sum256(fmt.Append(nil, o.content, o.status))
		if o.content > 0 {
			e.ContentHash = fmt.Append(nil, o.content)
		}
		entries = append(entries, e)
	}
	for _, e := range entries[len(objects):] { // another version beside the preferred one
		e.Preferred = false
		e.Path = "resources/" + manifest.GroupResource(e.Resource, e.Group) + "/" + e.Version + "/namespaces/" + e.Meta.Namespace + "/" + e.Meta.Name + ".json"
	}
	slices.SortFunc(entries, func(a, b *manifest.Entry) int { return entryKey(a).Compare(entryKey(b)) })
	var out bytes.Buffer
	w, err := manifest.NewWriter(&out, header, t.TempDir())
	require.NoError(t, err)
	for i, e := range entries {
		addEntry(t, w, e, int64(i))
	}
	require.NoError(t, w.Close(manifest.Trailer{}))
	return openManifest(t, out.Bytes())
}

func entryKey(e *manifest.Entry) manifest.Key {
	return manifest.Key{Kind: manifest.KindName(e.Group, e.Version, e.Kind), Namespace: e.Meta.Namespace, Name: e.Meta.Name}
}

// randomVersions returns a random set of objects; versionOf says which version a kind has.
func randomVersions(rnd *rand.Rand, versionOf map[string]string) map[manifest.ObjectKey]version {
	objects := map[manifest.ObjectKey]version{}
	for range rnd.IntN(60) {
		kind := fmt.Sprintf("k%d", rnd.IntN(5))
		key := manifest.ObjectKey{Group: "g", Kind: kind, Namespace: []string{"a", "a-b", "b"}[rnd.IntN(3)], Name: fmt.Sprintf("n%d", rnd.IntN(8))}
		objects[key] = version{key, versionOf[kind], rnd.IntN(4), rnd.IntN(2)}
	}
	return objects
}

func expectedDifference(a, b version, inA, inB bool) manifest.Difference {
	switch {
	case !inA:
		return manifest.Added
	case !inB:
		return manifest.Removed
	case a.content > 0 && a.content == b.content, a.content == b.content && a.status == b.status:
		return manifest.Unchanged
	case a.content == 0 || b.content == 0 || a.version != b.version:
		return manifest.Unknown
	}
	return manifest.Changed
}

// TestMergeIsTheUnionOfTwoManifests compares merges of random manifests with sets: each object once,
// with the right difference, in one order, and the mirror image the other way around.
func TestMergeIsTheUnionOfTwoManifests(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		versions := [2]map[string]string{{}, {}}
		for i := range 5 {
			kind := fmt.Sprintf("k%d", i)
			versions[0][kind] = "v1"
			versions[1][kind] = []string{"v1", "v1", "v2"}[rnd.IntN(3)]
		}
		a, b := randomVersions(rnd, versions[0]), randomVersions(rnd, versions[1])
		ra, _ := openVersions(t, a)
		rb, _ := openVersions(t, b)
		got, mirrored := mergeAll(t, ra, rb, manifest.MergeFilter{}), mergeAll(t, rb, ra, manifest.MergeFilter{})
		require.Len(t, mirrored, len(got))
		union := maps.Clone(a)
		maps.Copy(union, b)
		require.ElementsMatch(t, slices.Collect(maps.Keys(union)), slices.Collect(maps.Keys(got)))
		for key, difference := range got {
			va, inA := a[key]
			vb, inB := b[key]
			require.Equal(t, expectedDifference(va, vb, inA, inB), difference, "seed %d: %v", seed, key)
			require.Equal(t, expectedDifference(vb, va, inB, inA), mirrored[key], "seed %d: %v", seed, key)
		}
		for _, difference := range mergeAll(t, ra, ra, manifest.MergeFilter{}) {
			require.Equal(t, manifest.Unchanged, difference)
		}
	}
}

// mergeAll collects a merge and checks its order.
func mergeAll(t *testing.T, a, b *manifest.Reader, f manifest.MergeFilter) map[manifest.ObjectKey]manifest.Difference {
	t.Helper()
	got := map[manifest.ObjectKey]manifest.Difference{}
	last := map[string]manifest.Key{}
	for pair, err := range manifest.Merge(t.Context(), a, b, f) {
		require.NoError(t, err)
		key := pair.Item().ObjectKey()
		require.NotContains(t, got, key)
		got[key] = pair.Difference(false)
		kind := key.Group + "/" + key.Kind
		place := manifest.Key{Namespace: key.Namespace, Name: key.Name}
		require.Negative(t, last[kind].Compare(place))
		last[kind] = place
	}
	return got
}

func TestMergeOfFilteredObjects(t *testing.T) {
	t.Parallel()
	one := func(group, kind, ns, name string) version {
		return version{manifest.ObjectKey{Group: group, Kind: kind, Namespace: ns, Name: name}, "v1", 1, 1}
	}
	set := func(versions ...version) map[manifest.ObjectKey]version {
		m := map[manifest.ObjectKey]version{}
		for _, v := range versions {
			m[v.key] = v
		}
		return m
	}
	a, _ := openVersions(t, set(one("g", "k", "a", "x"), one("g", "k", "b", "x"), one("h", "k", "a", "x"), one("g", "n", "", "a")))
	b, _ := openVersions(t, set(one("g", "k", "a", "y")))
	names := func(f manifest.MergeFilter) (names []string) {
		for key := range mergeAll(t, a, b, f) {
			names = append(names, fmt.Sprintf("%s/%s/%s/%s", key.Group, key.Kind, key.Namespace, key.Name))
		}
		slices.Sort(names)
		return names
	}
	require.Equal(t, []string{"g/k/a/x", "g/k/a/y", "g/k/b/x"}, names(manifest.MergeFilter{Resources: []string{"ks.g"}}))
	require.Equal(t, []string{"g/k/a/x", "g/k/a/y", "h/k/a/x"}, names(manifest.MergeFilter{Namespaces: []string{"a"}}))
	require.Equal(t, []string{"g/n//a"}, names(manifest.MergeFilter{Namespaces: []string{""}}))
	require.Empty(t, names(manifest.MergeFilter{Resources: []string{"ks.other"}}))
}

func TestMergeTakesThePreferredVersion(t *testing.T) {
	t.Parallel()
	key := manifest.ObjectKey{Group: "g", Kind: "k", Namespace: "a", Name: "x"}
	a, _ := openVersions(t, map[manifest.ObjectKey]version{key: {key, "v2", 1, 1}}, version{key, "v1", 2, 2})
	b, _ := openVersions(t, map[manifest.ObjectKey]version{key: {key, "v1", 1, 1}}, version{key, "v0", 3, 3}, version{key, "v3", 3, 3})
	require.Equal(t, map[manifest.ObjectKey]manifest.Difference{key: manifest.Unchanged}, mergeAll(t, a, b, manifest.MergeFilter{}))
}

// An action writes the body anew, with its fields in another order than an API server.
func TestBodiesOfDifferentActionsAreCompared(t *testing.T) {
	t.Parallel()
	a, b := manifest.Item{SHA256: "a", ContentHash: "a"}, manifest.Item{SHA256: "b", ContentHash: "b"}
	require.Equal(t, manifest.Changed, manifest.Pair{A: &a, B: &b}.Difference(false))
	a.Actions = []string{"example.com/rewrite"}
	require.Equal(t, manifest.Unknown, manifest.Pair{A: &a, B: &b}.Difference(false))
	b.Actions = []string{"example.com/rewrite"}
	require.Equal(t, manifest.Changed, manifest.Pair{A: &a, B: &b}.Difference(false))
}

func TestMergeEndsAfterAnError(t *testing.T) {
	t.Parallel()
	objects := randomVersions(rand.New(rand.NewPCG(1, 1)), map[string]string{"k0": "v1", "k1": "v1", "k2": "v1", "k3": "v1", "k4": "v1"})
	a, _ := openVersions(t, objects)
	b, src := openVersions(t, objects)
	src.fail = errors.New("the bucket is away")
	seen := 0
	for _, err := range manifest.Merge(t.Context(), a, b, manifest.MergeFilter{}) {
		require.ErrorIs(t, err, src.fail)
		seen++
	}
	require.Equal(t, 1, seen)
	for range manifest.Merge(t.Context(), a, a, manifest.MergeFilter{}) {
		break
	}
}

func TestDifferenceOfReorderedBodies(t *testing.T) {
	t.Parallel()
	pair := manifest.Pair{A: &manifest.Item{SHA256: "1", ContentHash: "a"}, B: &manifest.Item{SHA256: "2", ContentHash: "b"}}
	require.Equal(t, manifest.Changed, pair.Difference(false))
	require.Equal(t, manifest.Unknown, pair.Difference(true))
	pair.B.ContentHash = "a"
	require.Equal(t, manifest.Unchanged, pair.Difference(true))
}
