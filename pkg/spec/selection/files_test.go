package selection

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
