package selection

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

func TestParseItems(t *testing.T) {
	t.Parallel()
	items, err := ParseItems(nil)
	require.NoError(t, err)
	require.Equal(t, Items{}, items)

	items, err = ParseItems(map[string]string{holdfast.AnnotationItems: "deploy/shop/web, clusterrole/system:x", holdfast.AnnotationItemsWith: "children , dependencies"})
	require.NoError(t, err)
	require.Equal(t, Items{Named: []Item{{"deploy", "shop", "web"}, {"clusterrole", "", "system:x"}}, Dependencies: true, Children: true}, items)
	require.Equal(t, "deploy/shop/web clusterrole/system:x", items.Named[0].String()+" "+items.Named[1].String())

	for with, want := range map[string]string{"": "neither", "owners": "neither", "children,": "neither"} {
		_, err = ParseItems(map[string]string{holdfast.AnnotationItems: "a/b", holdfast.AnnotationItemsWith: with})
		require.ErrorContains(t, err, "metadata.annotations[holdfast.io/items-with]: ")
		require.ErrorContains(t, err, want)
	}
	_, err = ParseItem("cm/a/" + strings.Repeat("x", 2000))
	require.ErrorContains(t, err, "longer than the name of any object")
}

// What is read of an annotation is what its text says, or an error.
func FuzzParseItems(f *testing.F) {
	f.Add("deploy/shop/web, clusterrole/system:x", "children")
	f.Add("a/b", "")
	f.Add(",", "dependencies,children")
	f.Fuzz(func(t *testing.T, named, with string) {
		items, err := ParseItems(map[string]string{holdfast.AnnotationItems: named, holdfast.AnnotationItemsWith: with})
		if err != nil {
			return
		}
		require.True(t, items.Dependencies || items.Children)
		require.Len(t, items.Named, strings.Count(named, ",")+1)
		for i, text := range strings.Split(named, ",") {
			require.Equal(t, strings.TrimSpace(text), items.Named[i].String())
		}
	})
}
