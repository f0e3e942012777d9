package manifest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// sortObjects puts objects in the order of a manifest.
func sortObjects(objects []testObject) []testObject {
	slices.SortFunc(objects, func(a, b testObject) int {
		return manifest.Key{Kind: manifest.KindName(a.group, "v1", a.kind), Namespace: a.ns, Name: a.name}.Compare(
			manifest.Key{Kind: manifest.KindName(b.group, "v1", b.kind), Namespace: b.ns, Name: b.name})
	})
	return objects
}

// TestNamespaces wants those of items and of Namespace objects, wherever in a block they begin:
// names that begin alike, namespaces smaller and larger than a block, and some that occur in one
// kind only.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	sizes := map[string]int{"a": 2500, "a-b": 1, "a-bc": 700, "b": 1300, "zz": 3}
	objects := []testObject{
		{"", "Namespace", "namespaces", "", "a"}, {"", "Namespace", "namespaces", "", "empty"}, {"", "Node", "nodes", "", "n1"},
		{"apps", "Deployment", "deployments", "only-here", "web"},
	}
	for ns, n := range sizes {
		for i := range n {
			objects = append(objects, testObject{"", "Pod", "pods", ns, fmt.Sprintf("p-%05d", i)}, testObject{"", "Secret", "secrets", ns, fmt.Sprintf("s-%05d", i)})
		}
	}
	r, src := openManifest(t, writeManifest(t, sortObjects(objects)))
	got, err := r.Namespaces(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "a-b", "a-bc", "b", "empty", "only-here", "zz"}, got)
	counts, err := r.CountNamespaces(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"": 3, "a": 5000, "a-b": 2, "a-bc": 1400, "b": 2600, "only-here": 1, "zz": 6}, counts)

	broken := errors.New("broken")
	src.fail = broken
	_, err = r.Namespaces(t.Context())
	require.ErrorIs(t, err, broken)
	src.fail, src.short = nil, true
	_, err = r.Namespaces(t.Context())
	require.ErrorIs(t, err, manifest.ErrCorrupt)
}

// TestNamespacesOfALargeOneReadsLittle wants blocks within one namespace left alone.
func TestNamespacesOfALargeOneReadsLittle(t *testing.T) {
	t.Parallel()
	var objects []testObject
	for i := range 20_000 {
		objects = append(objects, testObject{"", "Pod", "pods", "large", fmt.Sprintf("p-%05d", i)})
	}
	data := writeManifest(t, objects)
	r, src := openManifest(t, data)
	before := src.bytes
	got, err := r.Namespaces(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"large"}, got)
	require.Less(t, src.bytes-before, int64(len(data)/10))

	r, _ = openManifest(t, writeManifest(t, nil))
	got, err = r.Namespaces(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)
}
