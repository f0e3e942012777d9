package moverpods

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPathsOfMountsAreReplaced(t *testing.T) {
	m := mounts{{"/mover/sub", "/b"}, {"/volume", "/c d"}, {"/mover", "/a"}}
	require.Equal(t, []string{"move", "/a/location.yaml", "--source=/c d", "/b/file", "/volumes", "--target", "/c d/x"},
		m.replaceIn([]string{"move", "/mover/location.yaml", "--source=/volume", "/mover/sub/file", "/volumes", "--target", "/volume/x"}))
}
