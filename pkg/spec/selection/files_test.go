package selection

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

func TestParseFiles(t *testing.T) {
	t.Parallel()
	parse := func(text string) (Items, error) { return ParseItems(map[string]string{holdfast.AnnotationFiles: text}) }
	items, err := parse(`{"shop/b.c":["etc"], "app/data":["a, b","x\ny/$z"]}`)
	require.NoError(t, err)
	require.Equal(t, Items{
		Named: []Item{{"persistentvolumeclaims", "app", "data"}, {"persistentvolumeclaims", "shop", "b.c"}}, Files: [][]string{{"a, b", "x\ny/$z"}, {"etc"}},
	}, items)
	namespaces, known := items.Bounds()
	require.True(t, known)
	require.Equal(t, []string{"app", "shop"}, namespaces)
	for text, want := range map[string]string{
		``: `is not {"NAMESPACE/CLAIM": ["PATH"]}`, `data:etc`: `is not {"NAMESPACE/CLAIM"`, `{"a/b":"c"}`: `is not {"NAMESPACE/CLAIM"`, `{}`: "names 0 paths",
		`{"data":["a"]}`: `"data" is not NAMESPACE/CLAIM`, `{"a/b/c":["a"]}`: `"a/b/c" is not`, `{"A/b":["a"]}`: `"A/b" is not`, `{"/b":["a"]}`: `"/b" is not`,
		`{"a/b":["c"],"a/d":["e"],"a/b":["f"],"a/d":["g"]}`: `duplicate field "a/b"`, `{"a/b":["c"]} {}`: `is not {"NAMESPACE/CLAIM"`,
		`{"a/b":[]}`: "claim a/b: names no path", `{"a/b":["c"],"a/d":null}`: "claim a/d: names no path", `{"a/b":["../c"]}`: `claim a/b: "../c" is not`,
	} {
		_, err := parse(text)
		require.ErrorContains(t, err, "metadata.annotations[holdfast.io/files]: ")
		require.ErrorContains(t, err, want, text)
	}
	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprintf("%q", fmt.Sprint(i)))
	}
	_, err = parse(`{"a/b":[` + strings.Join(many[:100], ",") + `]}`)
	require.NoError(t, err)
	_, err = parse(`{"a/b":[` + strings.Join(many, ",") + `]}`)
	require.ErrorContains(t, err, "names 101 paths, and must name 1 to 100")
	for _, other := range []string{holdfast.AnnotationItems, holdfast.AnnotationItemsWith} {
		_, err = ParseItems(map[string]string{holdfast.AnnotationFiles: `{"a/b":["c"]}`, other: "pvc/a/b"})
		require.ErrorContains(t, err, "metadata.annotations[holdfast.io/files]: cannot be set together")
	}
}

func TestCheckPaths(t *testing.T) {
	t.Parallel()
	for _, good := range [][]string{{"a"}, {"a/b", "a/c", "ab"}, {"-x", "..a", ".hidden", "a, b", "a\nb", "$(X)", "a:b"}} {
		require.NoError(t, CheckPaths(good), "%q", good)
	}
	for want, bad := range map[string][]string{
		"names no path": nil, `"" is not`: {"a", ""}, `"." is not`: {"."}, `"../a" is not`: {"../a"}, `"a/../b" is not`: {"a/../b"},
		`"/a" is not`: {"/a"}, `"a/" is not`: {"a/"}, `"a//b" is not`: {"a//b"}, `"./a" is not`: {"./a"}, `"\xff" is not`: {"\xff"}, `"a\x00" is not`: {"a\x00"},
		`"a" is at or below "a"`: {"a", "a"}, `"a/b/c" is at or below "a/b"`: {"a/b/c", "x", "a/b"},
	} {
		require.ErrorContains(t, CheckPaths(bad), want, "%q", bad)
	}
}
