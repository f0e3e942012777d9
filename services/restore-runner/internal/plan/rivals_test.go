package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of two objects that were mapped to one name either could come first, and the other was left out
// without a word of whose it was.
func TestObjectsMappedToOneNameComeInTheOrderOfTheirNamespaces(t *testing.T) {
	p := planOf(t, &listing{items: newItems("configmaps c/x", "configmaps b/x", "configmaps a/x", "configmaps a/y", "secrets b/x",
		"configmaps other/x", "namespaces a", "namespaces b", "namespaces other", "persistentvolumes x")},
		options{mapping: map[string]string{"a": "t", "b": "t", "c": "t"}})
	rivals := map[string]string{}
	named := func(i int32) string { return p.Kind(i).String() + " " + p.Source(i) + "/" + p.Name(i) }
	for i := range int32(p.Len()) {
		if before, ok := p.RivalBefore(i); ok {
			rivals[named(i)] = named(before)
			require.Equal(t, p.Class(i) == Other, slices.Contains(p.Graph().Successors(before), i), "the first comes first")
		}
	}
	require.Equal(t, map[string]string{"configmaps b/x": "configmaps a/x", "configmaps c/x": "configmaps b/x", "namespaces /b": "namespaces /a"}, rivals)

	p = planOf(t, &listing{items: newItems("configmaps a/x", "configmaps b/x")}, options{mapping: map[string]string{"a": "b"}})
	require.Len(t, p.rivals, 1, "one is mapped to the other")
	p = planOf(t, &listing{items: newItems("configmaps a/x", "configmaps b/x")}, options{mapping: map[string]string{"a": "b", "b": "a"}})
	require.Empty(t, p.rivals, "swapped")
}
