package manifest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// sorted puts objects in the order of a manifest.
func sorted(objects []object) []object {
	slices.SortFunc(objects, func(a, b object) int {
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
	objects := []object{
		{"", "Namespace", "namespaces", "", "a"}, {"", "Namespace", "namespaces", "", "empty"}, {"", "Node", "nodes", "", "n1"},
		{"apps", "Deployment", "deployments", "only-here", "web"},
	}
	for ns, n := range sizes {
		for i := range n {
			objects = append(objects, object{"", "Pod", "pods", ns, fmt.Sprintf("p-%05d", i)}, object{"", "Secret", "secrets", ns, fmt.Sprintf("s-%05d", i)})
		}
	}
	r, src := open(t, write(t, sorted(objects)))
	got, err := r.Namespaces(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "a-b", "a-bc", "b", "empty", "only-here", "zz"}, got)

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
	var objects []object
	for i := range 20_000 {
		objects = append(objects, object{"", "Pod", "pods", "large", fmt.Sprintf("p-%05d", i)})
	}
	data := write(t, objects)
	r, src := open(t, data)
	before := src.bytes
	got, err := r.Namespaces(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"large"}, got)
	require.Less(t, src.bytes-before, int64(len(data)/10))

	r, _ = open(t, write(t, nil))
	got, err = r.Namespaces(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)
}
